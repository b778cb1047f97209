package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
