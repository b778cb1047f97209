package codegen

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

func TestScratchPTX(t *testing.T) {
	dev := kernels.Device{Kind: kernels.GPU, Major: 9, SMs: 132, SharedOptin: 227 << 10}
	shape := []int{512, 32, 32, 64}
	d, c := Dense(shape), View{Elements: 64, Strides: []int{0, 0, 0, 1}}
	half := expr.Dtype(expr.BF16)
	for name, stored := range map[string][]expr.Dtype{"f32": {kernels.Float32, kernels.Float32, kernels.Float32}, "bf16": {half, half, half}} {
		b := expr.NewBuilder(stored[0], stored[1], stored[2], kernels.Float32, kernels.Float32)
		v := b.Inputs()
		for i := range 3 {
			if stored[i] != kernels.Float32 {
				v[i] = b.Convert(v[i], kernels.Float32)
			}
		}
		one := b.Constant(kernels.Float32, 1)
		zero := b.Constant(kernels.Float32, 0)
		g := b.Apply(expr.Mul, b.Convert(b.Apply(expr.Le, zero, b.Apply(expr.Div, one, v[0])), kernels.Float32), v[1])
		f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowSum, g), b.Apply(expr.RowSum, b.Apply(expr.Mul, g, b.Apply(expr.Mul, b.Apply(expr.Sub, v[2], v[3]), v[4])))))
		b2 := expr.NewBuilder(stored[0])
		w := b2.Operand(0)
		if stored[0] != kernels.Float32 {
			w = b2.Convert(w, kernels.Float32)
		}
		w = b2.Convert(w, kernels.Float64)
		f2 := testutil.Get[expr.Func](t)(b2.Func(b2.Apply(expr.RowSum, w), b2.Apply(expr.RowSum, b2.Apply(expr.Mul, w, w))))
		p, err := Rows(dev, f, shape, []int{0, 1, 2}, []bool{true, true}, d, d, d, c, c)
		testutil.Do(t, err)
		p2, err := Rows(dev, f2, shape, []int{0, 1, 2}, []bool{true, true}, d)
		testutil.Do(t, err)
		for what, p := range map[string]*kernels.Plan{"relu": p, "moments": p2} {
			for i, l := range p.Launches[:1] {
				t.Log(name, what, i, l.Grid, l.Block, l.Kernel.Image.(image).layout)
				text := ptxOf(t, l.Kernel.Image, 9)
				file := "/tmp/wt/convstep_out/" + what + "_" + name
				os.WriteFile(file+".ptx", text, 0o644)
				out, err := exec.Command("../../.toolkit/nvidia/cuda_nvcc/bin/ptxas", "-v", "-arch=sm_90", "-o", file+".cubin", file+".ptx").CombinedOutput()
				t.Log(string(out), err)
			}
		}
	}
}
