package passes

import (
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels/gemm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// An operand read by several split products is split once: x, w and dL/dy, which the gradients of y = x w each read
// twice. An operand with a single reader is split by that product's own plan.
func TestPlanesOnce(t *testing.T) {
	const side = 160
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
	planes, given := 0, map[[2]bool]int{}
	for _, in := range g.Program.Instrs {
		k, _ := in.Op.(program.Kernel)
		switch of := k.Planner.(type) {
		case gemm.Prepare:
			planes++
		case gemm.Product:
			given[[2]bool{of.A.Form == gemm.BF16Split, of.B.Form == gemm.BF16Split}]++
		}
	}
	if planes != 3 || given[[2]bool{true, true}] != 3 || given[[2]bool{}] > 1 {
		t.Errorf("got %d planes and products by the planes given to them %v, want 3, and 3 that are given both:\n%v", planes, given, g.Program)
	}
}
