package gemm

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

var h200 = kernels.Device{Name: "NVIDIA H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20, Memory: 140 << 30, Cooperative: true, Bandwidth: 4.81e12, FMAs: 33.4e12}

// The time to choose kernels for a product of the record that were not chosen before.
func BenchmarkChoose(b *testing.B) {
	dev, list := readSweep(b, "testdata/sweep.json")
	var problems []problem
	for _, s := range list {
		problems = append(problems, s.product().problem(dev))
	}
	for i := 0; b.Loop(); i++ {
		x := &problems[i%len(problems)]
		x.search(max(x.A.Form, x.B.Form))
	}
}
