package main

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
)

// A training takes batches of 32 images. Its learning rate falls along half a cosine.
const (
	images  = 32
	rate    = 0.004
	dropout = 0.2
)

// trained is a network and the results of its training.
type trained struct {
	seed           uint64
	training, held digits.Set
	test           *network // for all that is held out, with the parameters that were learnt
	losses         []float64
	errors         []float64 // held-out images that are wrong, by epoch, in %
	wrong          []int     // at the end, by number
	nearest        int       // that the nearest neighbour gets wrong
	history        train.History
}

// train trains a new network from a seed, which decides which images are held out, the first
// weights, the order of the images and their distortion.
func (s *story) train(seed uint64) (t *trained, err error) {
	r := rand.New(rand.NewPCG(seed, 0))
	t = &trained{seed: seed}
	t.training, t.held = s.all.Split(r)

	net := newNetwork(images, dropout)
	if err := net.initialise(r); err != nil {
		return nil, err
	}
	if _, err := G.Grad(net.loss, net.parameters...); err != nil {
		return nil, err
	}
	solver := G.NewAdamSolver()
	vm, err := stheno.NewVM(net.graph, s.On(), cudaops.Train(solver, net.parameters...), cudaops.Seed(seed))
	if err != nil {
		return nil, err
	}
	defer vm.Close()

	// Another graph, with no dropout, for all that is held out.
	t.test = newNetwork(t.held.Len(), 0)
	testVM, err := stheno.NewVM(t.test.graph, s.On(), cudaops.ForwardOnly())
	if err != nil {
		return nil, err
	}
	defer testVM.Close()

	steps := s.epochs * (t.training.Len() / images)
	options := []train.Option{train.Epochs(s.epochs), train.LearnRate(solver, train.Cosine(rate, 0, steps)), train.AfterEpoch(func(e train.Epoch) error {
		if err := vm.Pull(); err != nil { // the parameters are on the device
			return err
		}
		t.losses = append(t.losses, e.Loss)
		return t.evaluate(net, testVM)
	})}
	if !s.Small() {
		options = append(options, train.Progress(os.Stderr))
	}
	t.history, err = train.Run(context.Background(), vm, net.loss, net.distorted(t.training, seed), options...)
	return t, err
}

// evaluate reads the images that are held out with the parameters of a network.
func (t *trained) evaluate(net *network, vm *cudaops.VM) error {
	if err := notebook.Share(t.test.parameters, net.parameters); err != nil {
		return err
	}
	if err := errors.Join(t.test.feed(t.held), vm.RunAll()); err != nil {
		return err
	}
	t.wrong = nil
	for i, label := range t.held.Labels {
		if digit, _ := t.test.answer(i); digit != label {
			t.wrong = append(t.wrong, i)
		}
	}
	t.errors = append(t.errors, 100*float64(len(t.wrong))/float64(t.held.Len()))
	return nil
}

// answer is the digit that image i is most probably, and the probability.
func (net *network) answer(i int) (digit int, probability float64) {
	return digits.Answer(net.logp.Data().([]float32)[i*digits.Classes:][:digits.Classes])
}

// nearestNeighbour counts the mistakes if an image is taken for the digit of the training image from
// which its pixels differ least.
func nearestNeighbour(training, held digits.Set) (wrong int) {
	for i, label := range held.Labels {
		image, best, least := held.Image(i), 0, math.Inf(1)
		for k := range training.Labels {
			distance := 0.0
			for j, v := range training.Image(k) {
				d := float64(v - image[j])
				distance += d * d
			}
			if distance < least {
				best, least = k, distance
			}
		}
		if training.Labels[best] != label {
			wrong++
		}
	}
	return wrong
}

// training trains a network from each seed.
func training(s *story) {
	s.Heading("The training")
	s.Text(`Package train takes the batches to the machine, which makes the steps of the solver: forward, backward and update are one run. The next batch is distorted while the last one is learnt. After each epoch the
		parameters are pulled from the device, and another graph reads the images that were held out, which are never trained on and never distorted.`)
	s.GoFunction("train.go", "train")
	s.Text(`How good is good? The simplest method with no network at all is the nearest neighbour: find the training image whose pixels differ least, and take its digit. Its mistakes are beside the network's. A network may
		also be lucky, so there are several, each from a seed of its own, which decides which images are held out, too.`)
	t := figure.Table{Header: []string{"seed", "held out", "nearest neighbour's mistakes", "the network's", "right", "steps per second", "training"}}
	wrong, held := 0, 0
	for seed := range s.seeds {
		net, err := s.train(uint64(seed + 1))
		if err != nil {
			notebook.Fail("seed %d: %w", seed+1, err)
		}
		net.nearest = nearestNeighbour(net.training, net.held)
		s.nets = append(s.nets, net)
		wrong, held = wrong+len(net.wrong), held+net.held.Len()
		t.Add(net.seed, net.held.Len(), net.nearest, len(net.wrong), percent(len(net.wrong), net.held.Len()),
			net.history.Rate(), fmt.Sprintf("%.1f s", net.history.Time.Round(time.Second/10).Seconds()))
	}
	t.Caption = fmt.Sprintf("%d epochs of %d steps with %d images, on %s; the times count the reading of what is held out", s.epochs, s.nets[0].training.Len()/images, images, s.Where())
	s.Table(t)
	s.curves()
	right := 1 - float64(wrong)/float64(held)
	if right < s.want {
		notebook.Fail("%s of the held-out digits are right, want at least %.1f %%: are %d epochs enough?", percent(wrong, held), 100*s.want, s.epochs)
	}
	s.Text("Of %d held-out digits %d are read wrong: %s are right. The program fails below %.1f %%.", held, wrong, percent(wrong, held), 100*s.want)
}

// percent is the share that is right.
func percent(wrong, of int) string {
	return fmt.Sprintf("%.2f %%", 100*(1-float64(wrong)/float64(of)))
}

// curves draws losses and errors by epoch.
func (s *story) curves() {
	loss := figure.Chart{Title: "Training loss by epoch", XLabel: "epoch", Log: true}
	wrong := figure.Chart{Title: "Held-out digits that are wrong, %", XLabel: "epoch", Zero: true}
	colours := []color.RGBA{figure.Blue, figure.Amber, figure.Green, figure.Red, figure.Ink}
	for i, t := range s.nets {
		series := figure.Series{Name: fmt.Sprintf("seed %d", t.seed), Colour: colours[i%len(colours)], Y: t.losses}
		loss.Series = append(loss.Series, series)
		series.Y = t.errors
		wrong.Series = append(wrong.Series, series)
	}
	s.Figure("curves", "The trainings from all seeds. The rate falls to 0 towards the end, and the curves come to rest.", loss, wrong)
}
