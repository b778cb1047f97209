package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
)

func ExampleValidate() {
	folder, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(folder)
	last, best := filepath.Join(folder, "last.safetensors"), filepath.Join(folder, "best.safetensors")
	inputs, targets := plane(1050)
	build := func(rows int) (x, y, errors *G.Node, parameters G.Nodes) {
		g := G.NewGraph()
		x = G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(rows, 2))
		y = G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(rows))
		parameters, errors = model(G.Must(G.Dropout(x, 0.05)), y)
		return x, y, errors, parameters
	}

	store := cudaops.NewStore()
	defer store.Close()
	x, y, errors, parameters := build(32)
	loss := mean(errors, parameters)
	solver := G.NewAdamSolver()
	vm, err := stheno.NewVM(x.Graph(), cudaops.Seed(1), cudaops.In(store), cudaops.Train(solver, parameters...))
	check(err)
	defer vm.Close()
	heldX, heldY, squares, _ := build(16) // the same model for other batches
	test, err := stheno.NewVM(heldX.Graph(), cudaops.In(store), cudaops.Inference(), cudaops.Outputs(squares))
	check(err)
	defer test.Close()
	data, err := train.NewData(train.Columns{x: inputs[:2000], y: targets[:1000]})
	check(err)
	held, err := train.NewData(train.Columns{heldX: inputs[2000:], heldY: targets[1000:]}) // 50 rows: 3 batches and 2 rows
	check(err)

	history, err := train.Run(context.Background(), vm, loss, data.Shuffle(1),
		train.Epochs(100), train.LearnRate(solver, train.StepDecay(0.1, 0.8, 31)),
		train.Validate(test, held, train.Mean("mse", squares)), // after each epoch
		train.EarlyStop(5), train.KeepBest(best), train.Checkpoint(last, 100))
	check(err)
	fmt.Printf("stopped after epoch %d: epoch %d was the best, mse %.4f\n",
		len(history.Epochs), history.Best, history.Epochs[history.Best-1].Scores["mse"])

	near := train.Metric{Name: "within 0.1", Nodes: G.Nodes{squares},
		Sums: func(v []G.Value) ([]float64, error) { // of a batch, without what fills it up
			rows, within := v[0].Data().([]float64), 0.0
			for _, square := range rows {
				if square <= 0.1*0.1 {
					within++
				}
			}
			return []float64{within, float64(len(rows))}, nil
		},
		Value: func(sums []float64) float64 { return sums[0] / sums[1] },
	}
	_, err = checkpoint.LoadStore(best, store)
	check(err)
	scores, err := train.Evaluate(context.Background(), test, held, train.Mean("mse", squares), near)
	check(err)
	fmt.Printf("the best epoch again: mse %.4f, %.0f %% within 0.1\n", scores["mse"], 100*scores["within 0.1"])
	// Output:
	// stopped after epoch 14: epoch 9 was the best, mse 0.0359
	// the best epoch again: mse 0.0359, 46 % within 0.1
}

// The state of a program's own, in the file of the training.
func ExampleCheckpoint_value() {
	folder, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "plane.safetensors")
	inputs, targets := plane(1000)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := mean(errors, parameters)
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)
	for _, epochs := range []int{2, 3} {
		vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(), parameters...))
		check(err)
		var seen struct{ Rows int } // any value that encoding/json takes
		_, err = train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Epochs(epochs), train.Checkpoint(path, 10, &seen),
			train.AfterStep(1, func(train.Step) error { seen.Rows += 32; return nil }))
		check(err)
		fmt.Println(seen.Rows, "rows after", epochs, "epochs")
		check(vm.Close())
	}
	// Output:
	// 1984 rows after 2 epochs
	// 2976 rows after 3 epochs
}
