package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// The whole program, small, where the tests run.
func TestRun(t *testing.T) {
	want := []string{"ld.acquire.gpu", "cluster_half", "this CPU, host body", "symbolic and dual"}
	_, page, dir := notebooktest.Run(t, title, files, run, 4, want...)
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("the page has no %q", w)
		}
	}
	for _, name := range []string{"wrong", "planes", "blocks", "alone"} {
		if _, err := os.Stat(filepath.Join(dir, name+".png")); err != nil {
			t.Error(err)
		}
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) { notebooktest.Recorded(t, files, run) }

// The two wrong kernels are distinguished from the right ones, and are wrong by warps and by
// blocks.
func TestObserve(t *testing.T) {
	for _, c := range []struct {
		barrier versions.Barrier
		wrong   bool
	}{{versions.BarrierNone, true}, {versions.BarrierBlock, true}, {versions.BarrierWrap, false}, {versions.BarrierGraph, false}} {
		s := observe(nil, steps, on(c.barrier, 2, 64), 2)
		if wrong := s.wrong > 0; wrong != c.wrong || s.warps != 100 || c.barrier != versions.BarrierNone && s.blocks != 100 {
			t.Errorf("%v: %v %% of the elements are wrong, %v %% of the warps and %v %% of the blocks whole, want some wrong: %v", c.barrier, s.wrong, s.warps, s.blocks, c.wrong)
		}
	}
}

// Groups are whole if they are all wrong or all right.
func TestShare(t *testing.T) {
	ratios := []float64{1, 2, 2, 2, 1, 1, 1, 1}
	for _, c := range []struct {
		size         int
		wrong, whole float64
	}{{1, 37.5, 100}, {2, 25, 75}, {4, 0, 50}, {8, 0, 0}} {
		if wrong, whole := share(ratios, c.size); wrong != c.wrong || whole != c.whole {
			t.Errorf("groups of %d: %v %% wrong, %v %% whole, want %v and %v", c.size, wrong, whole, c.wrong, c.whole)
		}
	}
}

// The difference of two planes is greatest where they are furthest apart, either way.
func TestMinus(t *testing.T) {
	points, row, column := plane{{1, 2}, {3, math.NaN()}}.minus(plane{{0, 2}, {7, 1}})
	if row != 1 || column != 0 || points[row][column] != -4 || points[0][0] != 1 {
		t.Errorf("got %v, greatest at %d, %d, want -4 at 1, 0", points, row, column)
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
