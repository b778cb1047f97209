package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

func TestParseLog(t *testing.T) {
	const log = `nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated and may be removed in a future release
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'sum_f64' for 'sm_80'
ptxas info    : Function properties for sum_f64
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 388 bytes cmem[0]
ptxas info    : Compiling entry function 'sum_f32' for 'sm_80'
ptxas info    : Function properties for sum_f32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 34 registers, used 0 barriers, 384 bytes cmem[0]
sum.cu(3): warning #177-D: variable "x" was declared but never referenced
`
	kernels, warnings := parseLog(log)
	want := []manifest.Kernel{
		{Name: "sum_f32", Registers: 34},
		{Name: "sum_f64", Registers: 255, Stack: 16, Spill: 20, Shared: 1024},
	}
	if !slices.Equal(kernels, want) {
		t.Errorf("got %+v, want %+v", kernels, want)
	}
	if !strings.HasPrefix(warnings, "sum.cu(3)") || strings.Count(warnings, "\n") != 1 {
		t.Errorf("warnings are %q", warnings)
	}
}
