// Quickstart trains a classifier of handwritten digits: a Gorgonia graph of
// Stheno's ops and Gorgonia's own, on the GPU if there is one and on the host
// if not.
//
//	go run ./examples/quickstart
//
// It reads like a notebook: model.go builds the graph, gradients.go checks the
// derivatives, this file trains, figures.go draws.
// It fails if a gradient is wrong or if fewer than 95 % of the held-out digits are
// recognised.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
)

// options are the flags.
type options struct {
	epochs, batch int
	device        string
	seed          uint64
	out           string
	progress      io.Writer // receives the progress of the training; may be nil
}

func main() {
	var o options
	flag.IntVar(&o.epochs, "epochs", 30, "passes over the training images")
	flag.IntVar(&o.batch, "batchsize", 32, "images per step")
	flag.StringVar(&o.device, "device", "auto", "where to run: auto, gpu or cpu")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the split, the weights and the order of the images")
	flag.StringVar(&o.out, "out", "out", "folder of the figures")
	command.Flags("quickstart")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o.progress = os.Stderr
	accuracy, err := run(ctx, o, os.Stdout)
	if err == nil && accuracy < 0.95 {
		err = fmt.Errorf("%.1f %% of the held-out digits are right, want at least 95 %%: are %d epochs enough?", 100*accuracy, o.epochs)
	}
	command.Exit("quickstart", err)
}

// run does everything and returns the accuracy on the held-out digits.
func run(ctx context.Context, o options, w io.Writer) (float64, error) {
	// Where it runs.
	_, where, err := notebook.Device(o.device)
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(w, where)

	random := rand.New(rand.NewPCG(o.seed, 0))
	training, held, err := prepare(w, o, random)
	if err != nil {
		return 0, err
	}

	// The derivatives, before anything depends on them.
	fmt.Fprintln(w, "\nGradients against central differences")
	if err := checkGradients(w, o); err != nil {
		return 0, err
	}

	// Two graphs over the same parameters: one takes a training batch and has
	// the gradients, one takes all held-out images.
	model, test := newNetwork(o.batch), newNetwork(held.Len())
	if err := model.initialise(random); err != nil {
		return 0, err
	}
	if _, err := G.Grad(model.loss, model.parameters...); err != nil {
		return 0, err
	}
	vm, err := newMachine(model.graph, o.device, cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.003)), model.parameters...))
	if err != nil {
		return 0, err
	}
	defer vm.Close()
	testVM, err := newMachine(test.graph, o.device)
	if err != nil {
		return 0, err
	}
	defer testVM.Close()

	// Training.
	fmt.Fprintf(w, "\nTraining %d-%d-%d, %d images a step\n", digits.Pixels, hidden, digits.Classes, o.batch)
	h, err := learn(ctx, w, o, vm, model, training, func() (float64, float64, error) {
		if err := notebook.Share(test.parameters, model.parameters); err != nil {
			return 0, 0, err
		}
		loss, err := test.run(testVM, held)
		return loss, accuracy(test.predictions(), held), err
	})
	if err != nil {
		return 0, err
	}

	// The results.
	fmt.Fprintln(w, "\nWhere each op of a training step ran")
	fmt.Fprint(w, vm.Report())
	right := h.accuracy[o.epochs-1]
	fmt.Fprintf(w, "\n%.1f %% of the %d held-out digits are right\n", 100*right, held.Len())
	return right, draw(w, o.out, h, held, test.predictions())
}

// prepare loads the images, four in five to train on and one in five held out, and
// checks the flags against them.
func prepare(w io.Writer, o options, random *rand.Rand) (train, held digits.Set, err error) {
	all, err := digits.Load()
	if err != nil {
		return train, held, err
	}
	train, held = all.Split(random)
	fmt.Fprintf(w, "%d handwritten digits of %d x %d pixels: %d to train on, %d held out\n",
		all.Len(), digits.Side, digits.Side, train.Len(), held.Len())
	if o.epochs < 1 {
		return train, held, command.Misused("-epochs is %d, want at least 1", o.epochs)
	}
	if o.batch < 1 || o.batch > train.Len() {
		return train, held, command.Misused("-batchsize is %d, want 1 to %d", o.batch, train.Len())
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return train, held, fmt.Errorf("-out: %w", err)
	}
	return train, held, nil
}

// learn trains the model, and measures after every epoch how well it reads held-out digits.
func learn(ctx context.Context, w io.Writer, o options, vm *cudaops.VM, model *network, training digits.Set,
	evaluate func() (loss, accuracy float64, err error)) (history, error) {
	var h history
	x, y := training.Tensors()
	data, err := train.NewData(train.Columns{model.x: x, model.y: y})
	if err != nil {
		return h, err
	}
	afterEpoch := func(e train.Epoch) error {
		if err := vm.Pull(); err != nil { // the parameters are on the device
			return err
		}
		loss, accuracy, err := evaluate()
		if err != nil {
			return err
		}
		h.train, h.held, h.accuracy = append(h.train, e.Loss), append(h.held, loss), append(h.accuracy, accuracy)
		fmt.Fprintf(w, "  epoch %2d of %d   loss %.4f   held out: loss %.4f, %.1f %% right   %.1f s\n", e.Number, o.epochs,
			e.Loss, loss, 100*accuracy, e.Time.Seconds())
		return nil
	}
	opts := []train.Option{train.Epochs(o.epochs), train.AfterEpoch(afterEpoch)}
	if o.progress != nil {
		opts = append(opts, train.Progress(o.progress))
	}
	// Images that do not fill the last batch wait for another epoch: each has its own order.
	_, err = train.Run(ctx, vm, model.loss, data.Shuffle(o.seed), opts...)
	return h, err
}

// newMachine makes Stheno's machine for a graph, in place of
// gorgonia.NewTapeMachine(g). "auto" is stheno.NewVM(g, opts...) alone.
func newMachine(g *G.ExprGraph, device string, opts ...cudaops.Option) (*cudaops.VM, error) {
	switch device {
	case "gpu":
		opts = append(opts, cudaops.OnDevice(0))
	case "cpu":
		opts = append(opts, cudaops.OnHost())
	}
	return stheno.NewVM(g, opts...)
}
