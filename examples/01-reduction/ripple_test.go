package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

func TestRipple(t *testing.T) {
	var log bytes.Buffer
	o := notebook.Options{Out: t.TempDir(), Small: true, Device: "cpu"}
	if err := notebook.Run(o, &log, "Ripple", nil, ripple); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, want := range []string{"__device__ T amplitude", "if (BARRIER) __syncthreads();", "ripple.png"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the text has no %q", want)
		}
	}
}
