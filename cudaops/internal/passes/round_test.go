package passes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/gemm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// An operand read by several split products is split once: x and w, which the gradients of y = x w read too. The launches that compute tanh v and dL/dy, or
// read v, store their splits.
func TestPlanesOnce(t *testing.T) {
	const side = 512
	dev := H200
	dev.SMs = 1 // so that small products are on the tensor cores
	n := &net{T: t, g: G.NewGraph(), r: rand.New(rand.NewPCG(1, 0)), dt: tensor.Float32}
	x, w, v := n.input(1<<30, side, side), n.input(1<<30, side, side), n.input(1<<30, side, side)
	y := G.Must(G.Mul(x, w))
	loss := G.Must(G.Add(G.Must(G.Sum(G.Must(G.Square(y)))), G.Must(G.Sum(G.Must(G.Mul(v, G.Must(G.Tanh(v))))))))
	if _, err := G.Grad(loss, x, w); err != nil {
		t.Fatal(err)
	}
	g, err := lower.New(n.g, nil)
	if err != nil {
		t.Fatal(err)
	}
	evaluates(t, g, Target{Device: dev})
	planes, stored, given := 0, 0, map[[2]bool]int{}
	for _, in := range g.Program.Instrs {
		if op, mapped := in.Op.(program.Map); mapped {
			for _, split := range op.Split {
				stored += map[codegen.Split]int{codegen.SplitInOrder: 1}[split]
			}
		}
		k, _ := in.Op.(program.Kernel)
		switch of := k.Planner.(type) {
		case gemm.Prepare:
			planes++
		case gemm.Product:
			given[[2]bool{of.A.Form == gemm.BF16Split, of.B.Form == gemm.BF16Split}]++
		}
	}
	if planes != 2 || stored != 3 || given[[2]bool{true, true}] != 4 {
		t.Errorf("got %d planes, %d stored by maps, and products by the planes given to them %v, want 2, 3, and 4 that are given both:\n%v", planes, stored, given, g.Program)
	}
}

// The filters of convolutions are prepared by instructions of their own, as early as the filters are there.
func TestFiltersEarly(t *testing.T) {
	p := testutil.Get[*lower.Graph](t)(lower.New(convolved(t, testutil.Random(t)), &lower.Wanted{Precision: kernels.BF16})).Program
	for _, pass := range All[:1+slices.IndexFunc(All, func(p Pass) bool { return p.Name == "round" })] {
		testutil.Do(t, pass.Run(p, Target{Device: H200, Mixed: kernels.BF16}))
	}
	testutil.Do(t, program.Verify(p))
	prepared, read, computed := 0, 0, false
	for _, in := range p.Instrs {
		k, _ := in.Op.(program.Kernel)
		switch of := k.Planner.(type) {
		case gemm.PrepareFilters:
			if prepared++; computed {
				t.Errorf("%v comes after a convolution", in)
			}
		case gemm.Conv:
			computed = true
			read += map[bool]int{true: 1}[of.Prepared]
		}
	}
	if prepared == 0 || read < prepared {
		t.Errorf("got %d instructions that prepare filters, and %d that read them:\n%v", prepared, read, p)
	}
}
