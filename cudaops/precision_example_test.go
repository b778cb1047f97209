package cudaops_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
)

// Two layers are trained with products in BF16, except the product that computes the scores.
func ExamplePrecision() {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(64, 30), G.WithInit(G.Uniform(-1, 1)))
	w0 := G.NewMatrix(g, G.Float32, G.WithName("w0"), G.WithShape(30, 20), G.WithInit(G.Uniform(-1, 1)))
	w1 := G.NewMatrix(g, G.Float32, G.WithName("w1"), G.WithShape(20, 10), G.WithInit(G.Uniform(-1, 1)))
	hidden := G.Must(G.Tanh(G.Must(G.Mul(x, w0))))
	scores := G.Must(G.Mul(hidden, w1))
	loss := G.Must(G.Mean(G.Must(G.Square(scores))))
	if _, err := G.Grad(loss, w0, w1); err != nil {
		fmt.Println(err)
		return
	}

	vm, err := cudaops.NewVM(g, cudaops.OnHost(), // OnDevice(0) for the GPU
		cudaops.Precision(cudaops.BF16),                  // all products of float32
		cudaops.Precision(cudaops.FullPrecision, scores), // but this one
		cudaops.Train(G.NewVanillaSolver(G.WithLearnRate(0.1)), w0, w1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range vm.Report().Steps {
		if s.Precision != cudaops.FullPrecision || strings.HasPrefix(s.Op, "kernel product") {
			fmt.Printf("%v: %s\n", s.Precision, strings.TrimPrefix(s.Op, "kernel "))
		}
	}
	// Output:
	// BF16: rounded[BF16]
	// BF16: rounded[BF16]
	// BF16: product[BF16] tanh(c) of rounded
	// float32: product
	// BF16: rounded[BF16]
	// BF16: rounded[BF16]
	// BF16: product[TransA BF16] of rounded
	// BF16: rounded[BF16]
	// BF16: product[TransB BF16] c * (1 - x0 * x0) of rounded
	// BF16: rounded[BF16]
	// BF16: product[TransA BF16] of rounded
}

// A layer is trained with activations in F16. The first scale of the loss is too large: its gradients are infinite in F16.
func ExampleLossScaling() {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float32, G.WithName("x"), G.WithShape(16, 8), G.WithInit(G.Ones()))
	w := G.NewMatrix(g, G.Float32, G.WithName("w"), G.WithShape(8, 8), G.WithInit(G.ValuesOf(float32(0.1))))
	loss := G.Must(G.Mean(G.Must(G.Square(G.Must(G.Tanh(G.Must(G.Mul(x, w))))))))
	if _, err := G.Grad(loss, w); err != nil {
		fmt.Println(err)
		return
	}

	vm, err := cudaops.NewVM(g, cudaops.OnHost(), // OnDevice(0) for the GPU
		cudaops.Mixed(cudaops.F16),
		cudaops.LossScaling(cudaops.GradScaler{Scale: 1 << 24}), // 65536 by default
		cudaops.Train(G.NewAdamSolver(), w))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vm.Close()
	for range 3 {
		if err := vm.RunAll(); err != nil {
			fmt.Println(err)
			return
		}
		s, err := vm.LossScale()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("loss %.3f, scale %.0f after %d steps\n", loss.Value(), s.Scale, s.Steps)
	}
	// Output:
	// loss 0.441, scale 8388608 after 0 steps
	// loss 0.441, scale 8388608 after 1 steps
	// loss 0.435, scale 8388608 after 2 steps
}

func TestPrecisionDocument(t *testing.T) {
	testutil.CheckDocument(t, "../docs/precision.md", "precision_example_test.go", 6, "../gradcheck/example_test.go")
}
