// Resnet trains ResNet-18 on handwritten digits, drawn at 32 x 32 in any two shades, after a comparison with PyTorch's on the same weights.
//
//	go run ./examples/14-resnet
//	go run ./examples/14-resnet -html out.html
//
// It reads like a notebook: run is the story, below it are the images, the training and the comparison; model.go is the network. testdata/make.py recorded PyTorch's logits. It fails if
// one differs by more than a hundred thousandth of the largest, or if too few digits that were held out are right.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

//go:embed *.go testdata/*.safetensors
var files embed.FS

const title = "ResNet-18: a deep network, checked against PyTorch and trained"

// The side of the images, and the channels of the network in testdata/make.py.
const side, recorded = 32, 4

func main() { notebook.Main(title, files, run) }

func run(p *notebook.Page) {
	width, epochs, batch, want := p.Size(64, 8, 4), p.Size(30, 6, 4), p.Size(128, 32, 8), float64(p.Size(95, 85, 0))/100 // a few steps are no measure
	p.Heading("The network")
	p.Text("ResNet-18 is seventeen convolutions and a layer of sums. In a chain of so many layers, gradients fade before they reach the first one; so each pair of convolutions only adds something to what comes in, and the gradient of a sum passes it unchanged. It was made for photographs; for images of 32 x 32 pixels the first convolution is small and nothing halves the image before the first block.")
	p.GoFunction("model.go", "resnet", "block", "normed")
	p.Heading("Beside PyTorch")
	p.Text("The names are torchvision's, so PyTorch's files can be loaded. Here is one of a network of %d channels in place of 64, with the logits that PyTorch computed of it: for evaluation, where batch normalization uses recorded means, and for training, where it uses those of the batch.", recorded)
	p.GoFunction("main.go", "load", "compare")
	dir := notebook.Must(os.MkdirTemp("", "resnet"))
	defer os.RemoveAll(dir)
	notebook.Check(os.CopyFS(dir, files))
	store := load(dir + "/testdata/resnet.safetensors")
	defer store.Close()
	reference := notebook.Must(safetensors.Open(dir + "/testdata/logits.safetensors"))
	defer reference.Close()
	t := figure.Table{Caption: "Largest differences from PyTorch's logits, on " + p.Where(), Header: []string{"logits", "largest logit", "largest difference"}}
	for i, name := range []string{"evaluated", "trained"} { // in this order: a batch that trains moves the recorded means
		worst, largest := compare(p, store, reference, name, [][]nn.Option{{nn.Evaluation()}, nil}[i]...)
		if t.Add(name, fmt.Sprintf("%.2f", largest), fmt.Sprintf("%.1e", worst)); !(worst <= 1e-5*largest) {
			notebook.Fail("a logit (%s) differs from PyTorch's by %g, want at most %g", name, worst, 1e-5*largest)
		}
	}
	p.Table(t)
	p.Heading("The images")
	all := notebook.Must(digits.Load())
	training, held := all.Split(rand.New(rand.NewPCG(1, 0)))
	if p.Small() {
		training, held = training.Take(rand.New(rand.NewPCG(2, 0)).Perm(training.Len())[:320]), held.Take(rand.New(rand.NewPCG(3, 0)).Perm(held.Len())[:60])
	}
	p.Text("The %d digits of 07-convnet have 8 x 8 pixels. A seeded program draws them at %d x %d: turned, sheared, moved, in an ink and on a paper of any two shades, with noise. What a pixel is says nothing now; only edges do. Each epoch of the training draws %d digits anew; %d others are held out.", all.Len(), side, side, training.Len(), held.Len())
	p.GoFunction("main.go", "draw")
	p.Figure("images", "The first digits of the training, as two epochs see them.", figure.Pictures{Zoom: 2, Columns: 12, Images: pictures(append(draw(0, training)[:12*side*side], draw(1, training)[:12*side*side]...))})
	p.Heading("The training")
	p.GoFunction("main.go", "fit")
	trained := cudaops.NewStore()
	defer trained.Close()
	unseen := draw(-1, held)
	h := fit(p, trained, width, batch, epochs, training, held, unseen)
	wrong, steps := figure.Series{Name: "held out", Colour: figure.Blue}, figure.Series{Name: "loss", Colour: figure.Amber}
	for _, e := range h.Epochs {
		wrong.Y, steps.Y = append(wrong.Y, 100*(1-e.Scores["accuracy"])), append(steps.Y, e.Loss)
	}
	p.Figure("curves", fmt.Sprintf("A network of %d channels and batches of %d, on %s.", width, batch, p.Where()), figure.Chart{Title: "Training loss by epoch", XLabel: "epoch", Zero: true, Series: []figure.Series{steps}},
		figure.Chart{Title: "Held-out digits that are wrong, %", XLabel: "epoch", Zero: true, Series: []figure.Series{wrong}})
	right := h.Epochs[len(h.Epochs)-1].Scores["accuracy"]
	p.Text("%d steps, %.1f a second. Of the digits that were held out %.1f %% are right; the program fails below %.0f %%.", h.Steps, h.Rate(), 100*right, 100*want)
	if first, last := h.Epochs[0].Loss, h.Epochs[len(h.Epochs)-1].Loss; !(last < first) {
		notebook.Fail("the loss went from %.3f to %.3f, want less", first, last)
	}
	if right < want {
		notebook.Fail("%.1f %% of the held-out digits are right, want at least %.0f %%: are %d epochs enough?", 100*right, 100*want, epochs)
	}
}

// load returns the parameters of a file of PyTorch's, without the numbers of batches that its normalizations have seen.
func load(path string) *cudaops.Store {
	store := cudaops.NewStore()
	notebook.Must(checkpoint.LoadStore(path, store, checkpoint.Rename(func(name string) string {
		if strings.HasSuffix(name, ".num_batches_tracked") {
			return ""
		}
		return name
	})))
	return store
}

// compare returns the largest difference from recorded logits, and the largest of these.
func compare(p *notebook.Page, store *cudaops.Store, f *safetensors.File, name string, opts ...nn.Option) (worst, largest float64) {
	image := f.Find("x")
	n := int(image.Shape[0])
	pixels, want := make([]float32, n*side*side), make([]float64, n*digits.Classes)
	notebook.Check(errors.Join(safetensors.Elements(image, 0, pixels), safetensors.Elements(f.Find(name), 0, want)))
	s := nn.New(G.NewGraph(), append(opts, nn.In(store), nn.Loaded())...)
	x := s.Input("x", tensor.Float32, n, 1, side, side)
	logits := resnet(s, x, recorded, digits.Classes)
	vm := notebook.Must(s.NewVM(p.On(), cudaops.Outputs(logits)))
	defer vm.Close()
	notebook.Check(errors.Join(vm.Let(x, pixels), vm.RunAll()))
	for i, v := range logits.Value().Data().([]float32) {
		worst, largest = max(worst, math.Abs(float64(v)-want[i])), max(largest, math.Abs(want[i]))
	}
	return worst, largest
}

// draw draws digits at 32 x 32, as an epoch sees them: distorted, in two shades that are not alike, with noise.
func draw(epoch int, set digits.Set) (pixels []float32) {
	r := rand.New(rand.NewPCG(1, uint64(epoch)))
	for i := range set.Len() {
		paper, ink := r.Float32(), r.Float32()
		for math.Abs(float64(paper-ink)) < 0.3 {
			paper, ink = r.Float32(), r.Float32()
		}
		for _, v := range digits.DistortTo(r, set.Image(i), side) {
			pixels = append(pixels, paper+v*(ink-paper)+0.05*float32(r.NormFloat64()))
		}
	}
	return pixels
}

// pictures returns images of 32 x 32 as pictures.
func pictures(pixels []float32) (list []figure.Image) {
	for ; len(pixels) > 0; pixels = pixels[side*side:] {
		list = append(list, figure.Image{Width: side, Values: pixels[:side*side]})
	}
	return list
}

// fit trains a network, and reads the digits that are held out after each epoch.
func fit(p *notebook.Page, store *cudaops.Store, width, batch, epochs int, training, held digits.Set, unseen []float32) train.History {
	s, test := nn.New(G.NewGraph(), nn.In(store), nn.Seed(1)), nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	x, y := s.Input("x", tensor.Float32, batch, 1, side, side), s.Input("y", tensor.Int, batch)
	loss, solver := nn.CrossEntropy(s, resnet(s, x, width, digits.Classes), y), G.NewAdamSolver()
	notebook.Check(s.Grad(loss))
	vm := notebook.Must(s.NewVM(p.On(), cudaops.Train(solver, s.Parameters()...)))
	defer vm.Close()
	testX, testY := test.Input("x", tensor.Float32, 20, 1, side, side), test.Input("y", tensor.Int, 20)
	scores := resnet(test, testX, width, digits.Classes)
	testVM := notebook.Must(test.NewVM(p.On(), cudaops.Outputs(scores)))
	defer testVM.Close()
	source := train.SourceFunc(func(epoch, from int) iter.Seq2[train.Batch, error] {
		set := training.Take(rand.New(rand.NewPCG(2, uint64(epoch))).Perm(training.Len()))
		return notebook.Must(train.NewData(train.Columns{x: draw(epoch, set), y: set.Labels})).Batches(epoch, from)
	})
	steps := epochs * (training.Len() / batch)
	return notebook.Must(train.Run(context.Background(), vm, loss, source, train.Epochs(epochs), train.LearnRate(solver, train.Cosine(0.01, steps/10, steps)),
		train.Validate(testVM, notebook.Must(train.NewData(train.Columns{testX: unseen, testY: held.Labels})), train.Accuracy(scores, testY))))
}
