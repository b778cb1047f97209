package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A short training reaches the accuracy that the program promises, reports where
// it ran, checks gradients, and draws both figures; the same seed makes the
// same run.
func TestQuickstart(t *testing.T) {
	var logs [2]string
	for i := range logs {
		out := t.TempDir()
		var log bytes.Buffer
		accuracy, err := run(t.Context(), options{epochs: 8, batch: 32, device: "auto", seed: 1, out: out}, &log)
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		if accuracy < 0.95 {
			t.Errorf("accuracy %.3f, want at least 0.95\n%s", accuracy, log.String())
		}
		for _, name := range []string{"loss.png", "digits.png"} {
			f, err := os.Open(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 1000 {
				t.Errorf("%s: %v, want a picture at least 1000 pixels wide", name, err)
			}
		}
		for _, e := range expressions {
			if !strings.Contains(log.String(), "  "+e.name+" ") {
				t.Errorf("the gradient of %s was not checked", e.name)
			}
		}
		// The losses and accuracies, without the seconds and the report's times.
		logs[i] = strings.Join(regexp.MustCompile(`loss \d.*right`).FindAllString(log.String(), -1), "\n")
	}
	if strings.Count(logs[0], "\n") != 7 || logs[0] != logs[1] {
		t.Errorf("two runs of one seed differ:\n%s\n%s", logs[0], logs[1])
	}
}

func TestFlags(t *testing.T) {
	good := options{epochs: 1, batch: 32, device: "cpu", out: t.TempDir()}
	for want, change := range map[string]func(*options){
		"-epochs":    func(o *options) { o.epochs = 0 },
		"-batchsize": func(o *options) { o.batch = 1439 },
		"-device":    func(o *options) { o.device = "tpu" },
		"-out":       func(o *options) { o.out = "main.go" },
	} {
		o := good
		change(&o)
		if _, err := run(t.Context(), o, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want one that names %s", o, err, want)
		}
	}
}
