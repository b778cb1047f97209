package kernels_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// A plan is made with no device and prints itself; Run runs its Go bodies.
func ExamplePlan() {
	h200 := kernels.Device{Name: "H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20}
	p := reduce.Sum(h200, kernels.Float32, []int{2, 3}, []int{1}, false)
	fmt.Print(p)
	out := make([]float32, 2)
	err := p.Run([][]byte{kernels.Bytes([]float32{1, 2, 3, 4, 5, 6})}, kernels.Bytes(out), nil)
	fmt.Println(out, err)
	// Output:
	// sum_f32([2 3] over [1]): in [24] bytes, out 8, scratch 0
	//   1. sum_rows_f32<<<[2 1 1], [256 1 1], 0>>>(in0, out, out, out, 3, 3, 1, 0, 1)
	// [6 15] <nil>
}
