// Convnet trains a convolutional network to read handwritten digits, those of the
// quickstart, from several seeds, and looks at what it gets wrong and what it sees.
//
//	go run ./examples/07-convnet
//	go run ./examples/07-convnet -state run- -html out.html
//
// It reads like a notebook, from top to bottom. Without a GPU it runs on the host. With -state it
// continues trainings that were ended. It fails if fewer than 98.5 % of the digits that were held out are right, over all
// seeds.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

//go:embed *.go
var files embed.FS

const title = "A convolutional network: from neighbouring pixels to digits"

func main() {
	state := flag.String("state", "", "where the names of the trainings' files begin, such as run-: given again, the trainings continue")
	notebook.Main(title, files, func(p *notebook.Page) { run(p, *state) })
}

// model is the network: three convolutions, each with a rectifier, find features, the later ones of the earlier ones'
// features; maxima over 2 x 2 pixels halve the image twice, 8 to 4 to 2; and a layer of ten sums decides. In training, dropout takes some of
// the features away, so that the sums do not rely on one. seen are the features of the first layer.
func model(s *nn.Scope, n int) (x, seen, logits *G.Node) {
	x = s.Input("x", tensor.Float32, n, 1, digits.Side, digits.Side)
	seen = nn.ReLU(s, nn.Conv2d(s.At("conv1"), x, 16, 3, nn.Padding(1)))
	h := nn.ReLU(s, nn.Conv2d(s.At("conv2"), nn.MaxPool2d(s, seen, 2), 32, 3, nn.Padding(1)))
	h = nn.ReLU(s, nn.Conv2d(s.At("conv3"), h, 32, 3, nn.Padding(1)))
	return x, seen, nn.Linear(s.At("fc"), nn.Dropout(s, nn.Flatten(s, nn.MaxPool2d(s, h, 2)), 0.2), digits.Classes)
}

// distorted makes the batches of a training for the inputs x and y: in each epoch all images, in another order and three of four distorted anew.
func distorted(x, y *G.Node, set digits.Set, seed uint64) train.Source {
	return train.SourceFunc(func(epoch, from int) iter.Seq2[train.Batch, error] {
		return func(yield func(train.Batch, error) bool) {
			r, n := rand.New(rand.NewPCG(seed, uint64(epoch))), y.Shape()[0]
			for order := r.Perm(set.Len()); len(order) >= n; order = order[n:] {
				b := digits.Distorted(r, set.Take(order[:n]))
				if from--; from < 0 && !yield(train.Batch{x: b.Planes(), y: tensor.New(tensor.WithBacking(b.Labels))}, nil) {
					return
				}
			}
		}
	})
}

// fit trains the network of a Store from a seed, which decides the first weights, the order of the images and their distortion. After each epoch
// it reads the images that are held out; it keeps the best epoch, and ends when ten were not better. A training that was ended, or killed, continues
// when fit is called again with this state, where the names of its two files begin. In the end the Store has the best epoch.
func fit(store *cudaops.Store, on cudaops.Option, training, held digits.Set, seed uint64, epochs int, state string) train.History {
	s, test := nn.New(G.NewGraph(), nn.In(store), nn.Seed(seed)), nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	x, _, logits := model(s, 32)
	testX, _, scores := model(test, 64)
	y, labels, solver := s.Input("y", tensor.Int, 32), test.Input("y", tensor.Int, 64), G.NewAdamSolver()
	loss := nn.CrossEntropy(s, logits, y)
	notebook.Check(s.Grad(loss))
	vm := notebook.Must(s.NewVM(on, cudaops.Train(solver, s.Parameters()...), cudaops.Seed(seed)))
	defer vm.Close()
	testVM := notebook.Must(test.NewVM(on, cudaops.Outputs(scores)))
	defer testVM.Close()
	history := notebook.Must(train.Run(context.Background(), vm, loss, distorted(x, y, training, seed), train.Epochs(epochs), train.EarlyStop(10),
		train.LearnRate(solver, train.Cosine(0.004, 0, epochs*(training.Len()/32))), train.KeepBest(state+".best"), train.Checkpoint(state+".last", 100),
		train.Validate(testVM, notebook.Must(train.NewData(train.Columns{testX: held.Images, labels: held.Labels})), train.Accuracy(scores, labels))))
	notebook.Must(checkpoint.LoadStore(state+".best", store))
	return history
}

// read reads images, one or many, with the network of a Store: the logarithms of the digits' probabilities, the features and the filters of the first layer.
func read(store *cudaops.Store, on cudaops.Option, set digits.Set) (logp, seen, filters []float32) {
	s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	x, features, logits := model(s, set.Len())
	out := s.Keep(ops.LogSoftMax(logits, -1))
	vm := notebook.Must(s.NewVM(on, cudaops.Outputs(out, features)))
	defer vm.Close()
	notebook.Check(errors.Join(G.Let(x, set.Planes()), vm.RunAll(), vm.Pull()))
	floats := func(n *G.Node) []float32 { return n.Value().Data().([]float32) }
	return floats(out), floats(features), floats(s.Parameters()[0])
}

// run tells the story.
func run(p *notebook.Page, state string) {
	seeds, epochs, want, all := p.Size(3, 3, 1), p.Size(40, 40, 2), float64(p.Size(985, 985, 700))/1000, notebook.Must(digits.Load())
	if state == "" {
		state = p.Folder() + "/"
	}
	p.Heading("The digits")
	p.Text(`The quickstart reads %d handwritten digits with a perceptron. It sees an image as %d numbers in no order: that two of them are neighbours it would have to learn, and what it learns about a stroke at one place it does not know at another. A convolutional network is built on both. There are few images to learn from, so it hardly sees one twice: when an image is used, it is distorted, each time in another way, by no more than people's hands differ. What is between two pixels is their mean, which blurs; the images to be read are not blurred, so one in four stays as it is.`, all.Len(), digits.Pixels)
	row := all.Take([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	p.Figure("digits", "The first images of the set, and under each what it may look like in a training.", figure.Pictures{Zoom: 8, Columns: row.Len(), Images: digits.Draw(row.Append(digits.Distorted(rand.New(rand.NewPCG(1, 1)), row.Append(row).Append(row))))})
	p.Heading("The network and its training")
	p.Text("The model is a function of layers of package nn. Training, evaluation and the reading of a single image call it for other numbers of images, with the parameters of one Store. Package train makes the steps, evaluates after each epoch on the device, and keeps the best epoch in one file, the last step in another. How good is good? The simplest method with no network at all is the nearest neighbour: find the training image whose pixels differ least, and take its digit. A network may also be lucky, so there are several, each from a seed of its own, which decides which images are held out, too.")
	p.GoFunction("main.go", "model", "distorted", "fit", "read")
	t := figure.Table{Header: []string{"seed", "held out", "nearest neighbour's mistakes", "the network's", "best epoch", "of", "began at step", "steps per second"}}
	losses, errs := figure.Chart{Title: "Training loss by epoch", XLabel: "epoch", Log: true}, figure.Chart{Title: "Held-out digits that are wrong, %", XLabel: "epoch", Zero: true}
	var tested digits.Set
	var logp, one, seen, filters []float32
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		store := cudaops.NewStore()
		defer store.Close()
		training, held := all.Split(rand.New(rand.NewPCG(seed, 0)))
		h := fit(store, p.On(), training, held, seed, epochs, fmt.Sprint(state, "seed", seed))
		line, wrong := figure.Series{Name: fmt.Sprint("seed ", seed), Colour: figure.Viridis(float64(seed) / float64(seeds+1))}, []float64(nil)
		for _, e := range h.Epochs {
			line.Y, wrong = append(line.Y, e.Loss), append(wrong, 100*(1-e.Scores["accuracy"]))
		}
		losses.Series, errs.Series = append(losses.Series, line), append(errs.Series, figure.Series{Name: line.Name, Colour: line.Colour, Y: wrong})
		one, _, _ = read(store, p.On(), held.Take([]int{0}))
		own, features, weights := read(store, p.On(), held)
		tested, logp, seen, filters = tested.Append(held), append(logp, own...), features, weights
		t.Add(seed, held.Len(), digits.NearestNeighbour(training, held), len(digits.Mistakes(held, own)), h.Best, len(h.Epochs), h.Begin.Step+1, h.Rate())
	}
	p.Table(t)
	p.Figure("curves", "The trainings from all seeds, on "+p.Where()+". The rate falls to 0 towards the end, and the curves come to rest.", losses, errs)
	mistakes := digits.Mistakes(tested, logp)
	right := 1 - float64(len(mistakes))/float64(tested.Len())
	if right < want {
		notebook.Fail("%.2f %% of the held-out digits are right, want at least %.1f %%: are %d epochs enough?", 100*right, 100*want, epochs)
	}
	digit, sure := digits.Answer(one)
	p.Text("Of %d held-out digits %d are read wrong: %.2f %% are right. The program fails below %.1f %%. A single image, read by a graph for one, is a %d with a probability of %.1f %%.", tested.Len(), len(mistakes), 100*right, 100*want, digit, 100*sure)
	p.Heading("What it gets wrong, and what it sees")
	p.Figure("confusion", "How often the networks read a digit as another one, on average over all held-out images. The diagonal, the right answers, is left out.", digits.Confusion(tested.Labels, logp))
	p.Figure("mistakes", "Images that were read wrong, seed by seed: the digit, what it was read as, and how sure the network was. Some are hard for people, too.", figure.Pictures{Zoom: 8, Columns: 10, Images: mistakes[:min(len(mistakes), 30)]})
	p.Figure("filters", "The filters of the first layer from the last seed: blue weights are positive, red ones negative. Below, three digits: the places where the filters find what they look for. No one told them what to look for; several look for an edge, each from another side.",
		figure.Pictures{Zoom: 21, Colour: figure.Diverging, Images: digits.DrawScaled(filters, 3, 3, true)}, figure.Pictures{Zoom: 8, Columns: 16, Images: digits.DrawScaled(seen[:3*16*digits.Pixels], digits.Side, digits.Side, false)})
}
