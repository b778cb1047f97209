package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/kernels"
)

// The whole program, small, where the tests run.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	o := notebook.Options{HTML: filepath.Join(dir, "page.html"), Out: dir, Small: true}
	if err := notebook.Run(o, &log, title, recorded, run); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	page, err := os.ReadFile(o.HTML)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ld.acquire.gpu", "cluster_half", "this CPU, host body", "symbolic and dual"} {
		if !strings.Contains(log.String(), want) || !strings.Contains(string(page), want) {
			t.Errorf("the text or the page has no %q", want)
		}
	}
	for _, name := range []string{"wrong", "plane", "blocks", "alone"} {
		if _, err := os.Stat(filepath.Join(dir, name+".png")); err != nil {
			t.Error(err)
		}
	}
}

// The two wrong kernels are told from the right ones, and are wrong by warps.
func TestObserve(t *testing.T) {
	for _, c := range []struct {
		barrier kernels.Barrier
		wrong   bool
	}{{kernels.BarrierNone, true}, {kernels.BarrierBlock, true}, {kernels.BarrierAcquire, false}, {kernels.BarrierGraph, false}} {
		s, err := observe(nil, steps, kernels.IterateBy{Barrier: c.barrier, Blocks: 2, Threads: 64}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := s.wrong > 0; wrong != c.wrong || math.Abs(s.together-100) > 1e-9 {
			t.Errorf("%v: %v %% of the elements are wrong, %v %% of the warps of one value, want some wrong: %v", c.barrier, s.wrong, s.together, c.wrong)
		}
	}
}

// Without recorded figures nothing is made up.
func TestNotRecorded(t *testing.T) {
	var log bytes.Buffer
	o := notebook.Options{Device: "cpu", Small: true}
	if err := notebook.Run(o, &log, title, nil, run); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "not recorded yet") || strings.Contains(log.String(), "NaN") {
		t.Errorf("got\n%s", log.String())
	}
}
