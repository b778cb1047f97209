package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// model is a line through points, with the mean of the squares of its errors as the loss.
func model() (g *gorgonia.ExprGraph, x, y *gorgonia.Node, learnables gorgonia.Nodes) {
	g = gorgonia.NewGraph()
	x = gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithName("x"), gorgonia.WithShape(4))
	y = gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithName("y"), gorgonia.WithShape(4))
	slope := gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName("slope"), gorgonia.WithValue(0.0))
	height := gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName("height"), gorgonia.WithValue(0.0))
	line := gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Mul(x, slope)), height))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(line, y))))))
	if _, err := gorgonia.Grad(loss, slope, height); err != nil {
		panic(err)
	}
	return g, x, y, gorgonia.Nodes{slope, height}
}

// feed binds the batch of a step: points of y = 2x + 1.
func feed(x, y *gorgonia.Node, step int) {
	var a, b [4]float64
	for i := range a {
		a[i] = float64((step+3*i)%7) - 3
		b[i] = 2*a[i] + 1
	}
	gorgonia.Let(x, tensor.New(tensor.WithBacking(a[:])))
	gorgonia.Let(y, tensor.New(tensor.WithBacking(b[:])))
}

// train makes as many steps in all, with a checkpoint after every hundred. A program that is
// started again goes on from the last one.
func train(path string, steps int) error {
	g, x, y, learnables := model()
	solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01))
	vm, err := stheno.NewVM(g, cudaops.Seed(1), cudaops.Train(solver, learnables...))
	if err != nil {
		return err
	}
	defer vm.Close()
	var at struct{ Step int } // the loop's own state
	if _, err := checkpoint.Load(path, vm, &at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for at.Step < steps {
		feed(x, y, at.Step) // batches follow from the step's number
		if err := vm.RunAll(); err != nil {
			return err
		}
		if at.Step++; at.Step%100 == 0 || at.Step == steps {
			if err := checkpoint.Save(path, vm, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// A training in two programs ends where one in a single program does.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	once, twice := filepath.Join(dir, "once"), filepath.Join(dir, "twice")
	for _, err := range []error{train(once, 1000), train(twice, 400), train(twice, 1000)} {
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	a, _ := os.ReadFile(once)
	b, _ := os.ReadFile(twice)
	fmt.Println("the same bits:", string(a) == string(b))

	// The parameters alone, for a graph that is not trained.
	_, _, _, learnables := model()
	if _, err := checkpoint.LoadParameters(twice, learnables); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("y = %.2f x + %.2f\n", learnables[0].Value().Data(), learnables[1].Value().Data())
	// Output:
	// the same bits: true
	// y = 2.00 x + 1.00
}

// The parameters of a model that another program has saved, with other names and with tensors that the graph does not have.
func ExampleLoadParameters() {
	parameters := gorgonia.Nodes{gorgonia.NewMatrix(gorgonia.NewGraph(), gorgonia.Float32, gorgonia.WithName("wte.weight"), gorgonia.WithShape(64, 24))}
	parameters = append(parameters, gorgonia.NewVector(parameters[0].Graph(), gorgonia.Float32, gorgonia.WithName("ln_f.bias"), gorgonia.WithShape(24)))
	const path = "testdata/gpt2/bf16.safetensors"
	loaded, err := checkpoint.LoadParameters(path, parameters, checkpoint.Partial(), checkpoint.Rename(func(name string) string {
		if name == "lm_head.weight" || strings.HasSuffix(name, ".attn.bias") {
			return "" // not a parameter of this graph
		}
		return strings.TrimPrefix(name, "transformer.")
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(loaded.Note)
	fmt.Println(len(loaded.Unused), "unused, among them", loaded.Unused[0])
	// Output:
	// a file of another program, without a checksum of Stheno: its content is unchecked
	// 26 unused, among them transformer.h.0.attn.c_attn.weight
}
