package train_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// plane draws n points of a plane, 3 a - 2 b + 1, with a little noise.
func plane(n int) (inputs, targets []float64) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		a, b := r.NormFloat64(), r.NormFloat64()
		inputs, targets = append(inputs, a, b), append(targets, 3*a-2*b+1+0.1*r.NormFloat64())
	}
	return inputs, targets
}

// model returns the parameters, and the square of the error of each row of a batch.
func model(x, y *G.Node) (parameters G.Nodes, errors *G.Node) {
	slopes := G.NewVector(x.Graph(), G.Float64, G.WithName("slopes"), G.WithShape(2), G.WithInit(G.Zeroes()))
	offset := G.NewScalar(x.Graph(), G.Float64, G.WithName("offset"), G.WithValue(0.0))
	estimate := G.Must(G.Add(G.Must(G.Mul(x, slopes)), offset))
	return G.Nodes{slopes, offset}, G.Must(G.Square(G.Must(G.Sub(estimate, y))))
}

func mean(errors *G.Node, parameters G.Nodes) (loss *G.Node) {
	loss = G.Must(G.Mean(errors))
	_, err := G.Grad(loss, parameters...)
	check(err)
	return loss
}

func Example() {
	inputs, targets := plane(1000)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := mean(errors, parameters)

	solver := G.NewAdamSolver()
	vm, err := stheno.NewVM(g, cudaops.Train(solver, parameters...))
	check(err)
	defer vm.Close()
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)
	history, err := train.Run(context.Background(), vm, loss, data.Shuffle(1),
		train.Epochs(10),
		train.LearnRate(solver, train.Cosine(0.1, 20, 310)),
		train.AfterEpoch(func(e train.Epoch) error {
			if e.Number%5 == 0 {
				fmt.Printf("epoch %d: loss %.2f\n", e.Number, e.Loss)
			}
			return nil
		}))
	check(err)
	fmt.Printf("%d steps: %.1f %.1f\n", history.Steps, parameters[0].Value(), parameters[1].Value())
	// Output:
	// epoch 5: loss 0.01
	// epoch 10: loss 0.01
	// 310 steps: [ 3.0  -2.0] 1.0
}

// The gradients of four batches make one step.
func Example_store() {
	inputs, targets := plane(1000)
	build := func(rows int) (g *G.ExprGraph, x, y, loss *G.Node, parameters G.Nodes) {
		g = G.NewGraph()
		x = G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(rows, 2))
		y = G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(rows))
		parameters, errors := model(x, y)
		return g, x, y, mean(errors, parameters), parameters
	}
	solver := G.NewAdamSolver(G.WithLearnRate(0.05))

	store := cudaops.NewStore()
	defer store.Close()
	g, x, y, loss, parameters := build(32)
	vm, err := stheno.NewVM(g, cudaops.In(store), cudaops.Train(solver, parameters...))
	check(err)
	defer vm.Close()
	all, allX, allY, mse, _ := build(1000) // the same model for all rows at once
	test, err := stheno.NewVM(all, cudaops.In(store), cudaops.Inference())
	check(err)
	defer test.Close()
	check(G.Let(allX, tensor.New(tensor.WithShape(1000, 2), tensor.WithBacking(inputs))))
	check(G.Let(allY, tensor.New(tensor.WithBacking(targets))))
	evaluate := func(e train.Epoch) error {
		check(test.RunAll()) // computes with the parameters in training: no Pull, no copy
		fmt.Printf("epoch %d: %.2f\n", e.Number, mse.Value())
		return nil
	}
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)
	_, err = train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Epochs(3), train.AfterEpoch(evaluate))
	check(err)
	// Output:
	// epoch 1: 3.17
	// epoch 2: 0.38
	// epoch 3: 0.03
}

// A state that a run changes, in the order of its rows.
func Example_state() {
	g := G.NewGraph()
	memory := G.NewMatrix(g, G.Float64, G.WithName("memory"), G.WithShape(3, 2))
	row := G.NewMatrix(g, G.Float64, G.WithName("row"), G.WithShape(1, 2))
	position := G.NewScalar(g, G.Int, G.WithName("position"))

	next, err := ops.Update(memory, row, position, 0) // a row of the memory
	check(err)
	vm, err := stheno.NewVM(g, cudaops.State(memory, next))
	check(err)
	defer vm.Close()
	for i := range 2 {
		check(G.Let(row, tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float64{float64(i + 1), 5}))))
		check(G.Let(position, i))
		check(vm.RunAll())
	}
	check(vm.Pull(memory))
	fmt.Println(memory.Value().Data())

	tape := G.NewTapeMachine(g)
	defer tape.Close()
	check(G.Let(position, 2))
	check(tape.RunAll())
	check(G.Let(memory, next.Value())) // after each run
	fmt.Println(memory.Value().Data())
	// Output:
	// [1 5 2 5 0 0]
	// [1 5 2 5 2 5]
}

// VMs of several sizes, used by several goroutines.
func Example_cache() {
	store := cudaops.NewStore()
	defer store.Close()
	model := func(rows int) (g *G.ExprGraph, x, y, w *G.Node) {
		g = G.NewGraph()
		x = G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(rows, 2))
		w = G.NewMatrix(g, G.Float64, G.WithName("w"), G.WithShape(1, 2), G.WithInit(G.ValuesOf(3.0)))
		return g, x, G.Must(ops.Linear(x, w, nil)), w
	}
	g, _, _, w := model(1)
	vm, err := stheno.NewVM(g, cudaops.In(store, w))
	check(err)
	defer vm.Close()

	cache, err := cudaops.NewCache(store, func(rows int) (*cudaops.Sized, error) {
		g, x, y, _ := model(rows)
		return &cudaops.Sized{Graph: g, In: []*G.Node{x}, Out: []*G.Node{y}, Options: []cudaops.Option{cudaops.OnAny(), cudaops.Inference()}}, nil
	}, cudaops.Limit{Rows: 64, Wait: time.Millisecond, Sizes: []int{1, 8, 64}})
	check(err)
	defer cache.Close()
	out, err := cache.Run(context.Background(), tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
	check(err)
	fmt.Println(out[0].Data())
	// Output:
	// [9 21]
}

func Example_stepEvery() {
	inputs, targets := plane(1024)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := mean(errors, parameters)
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)

	solver := G.NewAdamSolver(G.WithLearnRate(0.1), G.WithBatchSize(4)) // of the sum of 4 means, the mean
	vm, err := stheno.NewVM(g, cudaops.Train(solver, parameters...), cudaops.StepEvery(4))
	check(err)
	defer vm.Close()
	_, err = train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Epochs(20))
	check(err)
	state, err := vm.Snapshot()
	check(err)
	fmt.Printf("%d runs, %d steps: %.1f %.1f\n", state.Runs, state.Steps, parameters[0].Value(), parameters[1].Value())
	// Output:
	// 640 runs, 160 steps: [ 3.0  -2.0] 1.0
}

func Example_sets() {
	inputs, targets := plane(1000)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	weights, biases := parameters[:1], parameters[1:]
	loss := mean(errors, parameters)
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)

	decaying, plain := G.NewAdamW(cudaops.WeightDecay(0.2)), G.NewAdamW(cudaops.WeightDecay(0))
	vm, err := stheno.NewVM(g, cudaops.Train(decaying, weights...), cudaops.Train(plain, biases...), cudaops.EMA(0.99))
	check(err)
	defer vm.Close()
	schedule := train.Cosine(0.1, 20, 620)
	_, err = train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Epochs(20), train.LearnRate(decaying, schedule), train.LearnRate(plain, schedule))
	check(err)
	averages, err := vm.EMA() // by name: store.SetParameters(averages) for a VM that evaluates
	check(err)
	for _, a := range averages {
		fmt.Printf("%s: %.1f\n", a.Name, a.Value)
	}
	// Output:
	// slopes: [ 2.6  -1.8]
	// offset: 1.0
}

// A loop without this package: the VM makes the steps of the solver. Stage copies the next batch to the device during a run;
// without a device it does nothing.
func Example_ownLoop() {
	inputs, targets := plane(1000)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	mean(errors, parameters)
	batch := func(i int) map[*G.Node]G.Value {
		return map[*G.Node]G.Value{
			x: tensor.New(tensor.WithShape(32, 2), tensor.WithBacking(inputs[64*i:64*(i+1)])),
			y: tensor.New(tensor.WithBacking(targets[32*i : 32*(i+1)])),
		}
	}
	schedule := train.Cosine(0.1, 20, 310)

	solver := G.NewAdamSolver(G.WithLearnRate(0.001))
	vm, err := stheno.NewVM(g, cudaops.Train(solver, parameters...))
	check(err)
	defer vm.Close()
	for i := range 31 {
		b := batch(i)
		check(G.Let(x, b[x]))
		check(G.Let(y, b[y]))
		check(vm.RunAll()) // no solver.Step, no vm.Reset
	}

	next := batch(0)
	_, err = vm.Stage(next) // the run that has these very values bound takes them from the device
	check(err)
	for i := range 310 {
		G.WithLearnRate(schedule(i))(solver)
		b := next
		check(G.Let(x, b[x]))
		check(G.Let(y, b[y]))
		check(vm.RunAll())
		next = batch((i + 1) % 31)
		_, err := vm.Stage(next)
		check(err)
	}
	check(vm.Pull())
	fmt.Printf("%.1f %.1f\n", parameters[0].Value(), parameters[1].Value())
	// Output:
	// [ 3.0  -2.0] 1.0
}

// A data set on the device: a step takes the numbers of its rows there.
func ExampleNewDeviceData() {
	inputs, targets := plane(1000)
	g := G.NewGraph()
	data, err := train.NewDeviceData(g, 32,
		tensor.New(tensor.WithShape(1000, 2), tensor.WithBacking(inputs)),
		tensor.New(tensor.WithBacking(targets)))
	check(err)
	parameters, errors := model(data.Nodes[0], data.Nodes[1])
	loss := mean(errors, parameters)

	vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.05)), parameters...), data.Option())
	check(err)
	defer vm.Close()
	_, err = train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Epochs(10))
	check(err)
	fmt.Printf("%.1f %.1f\n", parameters[0].Value(), parameters[1].Value())
	// Output:
	// [ 3.0  -2.0] 1.0
}

// Weights: the last batch of an epoch, of 1000 - 31 * 32 = 8 rows, counts as it should.
func ExampleWeights() {
	inputs, targets := plane(1000)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	weights := G.NewVector(g, G.Float64, G.WithName("weights"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := G.Must(G.Sum(G.Must(G.HadamardProd(weights, errors)))) // of a full batch: the mean
	_, err := G.Grad(loss, parameters...)
	check(err)

	vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.05)), parameters...))
	check(err)
	defer vm.Close()
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)
	history, err := train.Run(context.Background(), vm, loss, data.Shuffle(1),
		train.Epochs(10), train.Weights(weights))
	check(err)
	fmt.Printf("%d steps, %d rows left out\n", history.Steps, history.Left)
	// Output:
	// 320 steps, 0 rows left out
}

// Batches from anywhere: an iterator, which runs in a goroutine of its own.
func ExampleSeq() {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := mean(errors, parameters)
	vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.05)), parameters...))
	check(err)
	defer vm.Close()

	inputs, targets := plane(320 * 32)
	var batches iter.Seq2[train.Batch, error] = func(yield func(train.Batch, error) bool) {
		for len(targets) > 0 { // a file, a decoder, a network: a failure is yielded as an error
			b := train.Batch{
				x: tensor.New(tensor.WithShape(32, 2), tensor.WithBacking(inputs[:64])),
				y: tensor.New(tensor.WithBacking(targets[:32])),
			}
			inputs, targets = inputs[64:], targets[32:]
			if !yield(b, nil) {
				return
			}
		}
	}
	history, err := train.Run(context.Background(), vm, loss, train.Seq(batches), train.Prefetch(4))
	check(err)
	fmt.Println(history.End)
	// Output:
	// step 320 (epoch 1, batch 0)
}

// Batches in pinned memory, recycled: there are as many as the loop holds at once.
func ExampleSource() {
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := mean(errors, parameters)
	vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.05)), parameters...))
	check(err)
	defer vm.Close()

	inputs, targets := plane(320 * 32)
	const ahead = 2
	var pinned [ahead + 2]train.Batch // filled in turn
	for i := range pinned {
		px, err := cudaops.Pinned(G.Float64, 32, 2)
		check(err)
		py, err := cudaops.Pinned(G.Float64, 32)
		check(err)
		pinned[i] = train.Batch{x: px, y: py}
	}
	var batches iter.Seq2[train.Batch, error] = func(yield func(train.Batch, error) bool) {
		for k := range len(targets) / 32 {
			b := pinned[k%len(pinned)]
			copy(b[x].Data().([]float64), inputs[64*k:])
			copy(b[y].Data().([]float64), targets[32*k:])
			if !yield(b, nil) {
				return
			}
		}
	}
	history, err := train.Run(context.Background(), vm, loss, train.Seq(batches), train.Prefetch(ahead))
	check(err)
	fmt.Println(history.End)
	// Output:
	// step 320 (epoch 1, batch 0)
}

// A training that ends within an epoch goes on where it was, in the same order.
func ExampleFrom() {
	inputs, targets := plane(1000)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := mean(errors, parameters)
	vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.05)), parameters...))
	check(err)
	defer vm.Close()
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)

	first, err := train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Steps(100))
	check(err)
	fmt.Println(first.End)
	rest, err := train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Epochs(10), train.From(first.End))
	check(err)
	fmt.Println(rest.End)
	_, err = train.Run(context.Background(), vm, loss, data.Shuffle(2), train.Epochs(11), train.From(rest.End))
	fmt.Println(err)
	// Output:
	// step 100 (epoch 3, batch 7)
	// step 310 (epoch 10, batch 0)
	// train: got a position in an order of "1000 rows, shuffled by seed 1, in batches of 32", the source has "1000 rows, shuffled by seed 2, in batches of 32"
}

// The second run goes on from where the first one ended, as another process would.
func ExampleCheckpoint() {
	folder, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "plane.safetensors")

	inputs, targets := plane(1000)
	for range 2 {
		g := G.NewGraph()
		x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
		y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
		parameters, errors := model(x, y)
		loss := mean(errors, parameters)
		vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.05)), parameters...))
		check(err)
		data, err := train.NewData(train.Columns{x: inputs, y: targets})
		check(err)
		history, err := train.Run(context.Background(), vm, loss, data.Shuffle(1),
			train.Epochs(10), train.Checkpoint(path, 100),
			train.AfterStep(150, func(train.Step) error { return train.ErrStop })) // somebody ends it
		check(err)
		fmt.Println(history.Begin, "to", history.End)
		check(vm.Close())
	}
	// Output:
	// step 0 (epoch 0, batch 0) to step 150 (epoch 4, batch 26)
	// step 150 (epoch 4, batch 26) to step 300 (epoch 9, batch 21)
}

// A bar on a terminal, a line now and then in a file; what is early stopping elsewhere.
func ExampleAfterEpoch() {
	inputs, targets := plane(1000)
	g := G.NewGraph()
	x := G.NewMatrix(g, G.Float64, G.WithName("x"), G.WithShape(32, 2))
	y := G.NewVector(g, G.Float64, G.WithName("y"), G.WithShape(32))
	parameters, errors := model(x, y)
	loss := mean(errors, parameters)
	vm, err := stheno.NewVM(g, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.05)), parameters...))
	check(err)
	defer vm.Close()
	data, err := train.NewData(train.Columns{x: inputs, y: targets})
	check(err)

	best := 1e9
	history, err := train.Run(context.Background(), vm, loss, data.Shuffle(1),
		train.Epochs(1000),
		train.Progress(os.Stderr),
		train.AfterEpoch(func(e train.Epoch) error {
			if e.Loss > 0.999*best { // vm.Pull() brings the parameters, for an evaluation
				return train.ErrStop
			}
			best = e.Loss
			return nil
		}))
	check(err)
	fmt.Println(len(history.Epochs) < 50, history.Epochs[len(history.Epochs)-1].Loss < 0.02)
	// Output:
	// true true
}

// A batch whose third row has no logarithm.
func Example_notANumber() {
	g := G.NewGraph()
	x := G.NewVector(g, G.Float64, G.WithName("x"), G.WithShape(4))
	w := G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(4), G.WithInit(G.Ones()))
	loss := G.Must(G.Sum(G.Must(G.HadamardProd(w, G.Must(G.Log(x))))))
	_, err := G.Grad(loss, w)
	check(err)
	data, err := train.NewData(train.Columns{x: []float64{1, 2, 3, 4, 5, 6, -7, 8}})
	check(err)

	vm, err := stheno.NewVM(g, cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(), w), cudaops.Watch(cudaops.NaN))
	check(err)
	defer vm.Close()
	_, err = train.Run(context.Background(), vm, loss, data)
	var bad *cudaops.NotFinite
	if errors.As(err, &bad) {
		fmt.Println(bad.What, "in", bad.Node.Op(), "in step", bad.Run)
	}
	fmt.Println(err)
	// Output:
	// NaN in ln in step 2
	// train: step 2 (epoch 0, batch 1): cudaops: training step 2: NaN in the value of node ln(x), element 2, made by step 1, rows f64, f64: t0 = log(x0); t1 = x1 * t0; t0, t1, rowsum(t1) over [0]; the learnables are as after step 1
}
