// Gpt trains a small GPT to write, on the text of 08-text: attention in place of a memory that is handed from letter to letter.
//
//	go run ./examples/09-gpt
//	go run ./examples/09-gpt -text book.txt -html out.html
//
// It reads like a notebook: run is the story, below it are the network, its training and how it writes. With -file it tells no story, but trains in that file, from
// where the file is if it is there, and writes. It fails if the network does not guess better than who knows how often each letter comes.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/opticks"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

//go:embed *.go
var files embed.FS

const title = "A GPT, letter by letter: attention to all that came before"

func main() {
	text := flag.String("text", "", "text to learn, 50 KB at least (Newton's Opticks from Go's sources without)")
	file := flag.String("file", "", "file of a training to continue, or to make")
	notebook.Main(title, files, func(p *notebook.Page) { run(p, *text, *file) })
}

func run(p *notebook.Page, path, file string) {
	text, name, err := opticks.Read(path, 50_000)
	notebook.Check(err)
	cut := (len(text) - p.Size(30_000, 30_000, 3_000)) / 256 * 256 // whole lines, and a letter
	m := &gpt{Page: p, layers: p.Size(6, 2, 2), width: p.Size(384, 64, 32), heads: p.Size(6, 4, 2), context: p.Size(256, 64, 32), batch: p.Size(64, 8, 8),
		steps: p.Size(3000, 500, 200), read: text[:cut+1], held: text[cut : cut+p.Size(25_600, 25_600, 2_560)+1], store: cudaops.NewStore()}
	defer m.store.Close()
	if file != "" {
		m.train(file, m.steps)
		p.Listing("what it writes", m.write("The "))
		return
	}
	p.Heading("The network")
	p.Text("We read %s, %d letters, and guess each next one, as in 08-text. There, a memory was handed from letter to letter. Here each letter looks back at all letters before it, up to %d: the more its query is like their keys, the more it takes of their values.", name, len(text), m.context)
	p.GoFunction("main.go", "logits")
	p.Text("Layers are functions, and parameters have the names that PyTorch's modules give them. They are in a store, not in a graph: this function builds the graphs of training, of reading what is held out, and of writing one letter after the other, all with one set of weights.")
	p.Table(figure.Table{Caption: "The network and its training", Header: strings.Split("layers width heads letters lines/step steps", " "), Rows: [][]string{strings.Fields(fmt.Sprint(m.layers, m.width, m.heads, m.context, m.batch, m.steps))}})
	p.Heading("The training, in two processes")
	dir := notebook.Must(os.MkdirTemp("", "gpt"))
	defer os.RemoveAll(dir)
	file = dir + "/gpt.safetensors"
	p.GoFunction("main.go", "train")
	m.train(file, m.steps*2/3)
	first, counted := m.bits(), 4.3
	p.Text("After %d steps, a letter of the text that is held out costs %.2f bits: log2(1/p) if its guess had probability p. The training is in a file. Another process loads it, makes the very steps that this one would have made next, and writes:", m.steps*2/3, first)
	device := map[bool]string{true: "gpu", false: "cpu"}[p.GPU() != nil]
	other := exec.Command(notebook.Must(os.Executable()), "-file", file, "-text", path, "-device", device, fmt.Sprint("-small=", p.Small()))
	other.Stderr = os.Stderr
	p.Listing("the other process", string(notebook.Must(other.Output())))
	notebook.Must(checkpoint.LoadStore(file, m.store))
	last := m.bits()
	p.Figure("bits", "This process has loaded what the other one learnt. Counting is to know how often each letter comes in English, and nothing else.", figure.Bars{Title: "What a letter costs", Label: "bits", Names: []string{"untrained", "counting letters", "this process", "the other process"}, Series: []figure.BarSeries{{Colour: figure.Blue, Values: []float64{8, counted, first, last}}}})
	if last >= counted {
		notebook.Fail("a letter that is held out costs %.2f bits, want less than %.1f: are %d steps enough?", last, counted, m.steps)
	}
	p.Heading("Writing, with a cache")
	p.Text("A letter looks at the keys and values of those before it, which do not change any more. So a run takes one letter, not the text so far, and appends its key and its value to a cache.")
	p.GoFunction("main.go", "write")
	p.Listing("what it writes", m.write("The light "))
	p.Heading("What it looks at")
	n, look, s := 24, G.Nodes{}, m.scope(nn.Evaluation())
	x := s.Input("x", tensor.Uint8, 1, n)
	m.logits(s, x, nn.Pattern(&look))
	vm := notebook.Must(s.NewVM(p.On(), cudaops.Outputs(look...)))
	defer vm.Close()
	notebook.Check(errors.Join(vm.Let(x, m.held[:n]), vm.RunAll()))
	pictures := figure.Pictures{Zoom: 8}
	for i := range m.layers * m.heads {
		pictures.Images = append(pictures.Images, figure.Image{Width: n, Text: fmt.Sprintf("layer %d, head %d", i/m.heads+1, i%m.heads+1),
			Values: look[i/m.heads].Value().Data().([]float32)[i%m.heads*n*n:][:n*n]})
	}
	p.Figure("attention", fmt.Sprintf("Each row is a letter of %q, and each column one that it may look at: the darker, the more it looks. Right of the diagonal is what has not come yet.", m.held[:n]), pictures)
}

// gpt is a GPT of letters, which are bytes, with the page and the text.
type gpt struct {
	*notebook.Page
	layers, width, heads, context, batch, steps int
	read, held                                  []byte
	store                                       *cudaops.Store // of the parameters of all graphs
}

// logits guesses the letter after each one of x, batch x time. opts are options of attention.
func (m *gpt) logits(s *nn.Scope, x *G.Node, opts ...nn.LayerOption) *G.Node {
	x = nn.Positions(s.At("positions"), nn.Embedding(s.At("letters"), x, 256, m.width), m.context)
	for l := range m.layers {
		x = nn.Residual(s.At("block", l), x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.SelfAttention(s.At("attn"), nn.LayerNorm(s.At("norm1"), x), m.heads, append(opts, nn.Causal())...)
		})
		x = nn.Residual(s.At("block", l), x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.Linear(s.At("fc2"), nn.GELU(s, nn.Linear(s.At("fc1"), nn.LayerNorm(s.At("norm2"), x), 4*m.width)), m.width)
		})
	}
	return nn.Linear(s.At("letters").Tied(), nn.LayerNorm(s.At("norm"), x), 256, nn.NoBias())
}

// scope returns the scope of a new graph with the parameters in the store.
func (m *gpt) scope(opts ...nn.Option) *nn.Scope {
	return nn.New(G.NewGraph(), append(opts, nn.In(m.store), nn.Seed(1), nn.Initial(nn.NormalWeights(0.06)))...)
}

// loss adds lines of letters, the letters that come next, and the mean cost of a letter to a graph.
func (m *gpt) loss(s *nn.Scope, lines int) (x, y, loss *G.Node) {
	x, y = s.Input("x", tensor.Uint8, lines, m.context), s.Input("y", tensor.Uint8, lines, m.context)
	return x, y, nn.CrossEntropy(s, m.logits(s, x), y)
}

// train trains up to a step, from the step that the file has if it is there.
func (m *gpt) train(file string, to int) {
	s := m.scope()
	x, y, loss := m.loss(s, m.batch)
	notebook.Check(s.Grad(loss))
	solver := G.NewAdamSolver()
	vm := notebook.Must(s.NewVM(m.On(), cudaops.Train(solver, s.Parameters()...), cudaops.ClipNorm(1)))
	defer vm.Close()
	data := notebook.Must(train.NewData(train.Columns{x: m.read[:len(m.read)-1], y: m.read[1:]}))
	notebook.Must(train.Run(context.Background(), vm, loss, data.Shuffle(1), train.Epochs(m.steps), train.Steps(to),
		train.LearnRate(solver, train.Cosine(0.3/float64(max(m.width, 64)), m.steps/20, m.steps)), train.Checkpoint(file, m.steps)))
}

// bits returns the mean cost of a letter that is held out.
func (m *gpt) bits() float64 {
	s, n := m.scope(nn.Evaluation()), len(m.held)-1
	x, y, loss := m.loss(s, n/m.context)
	vm := notebook.Must(s.NewVM(m.On()))
	defer vm.Close()
	notebook.Check(errors.Join(vm.Let(x, m.held[:n]), vm.Let(y, m.held[1:]), vm.RunAll()))
	return float64(loss.Value().Data().(float32)) / math.Ln2
}

// write goes on after a text, one letter a run, which draws the next letter and keeps keys, values and position on the device.
func (m *gpt) write(text string) string {
	s := m.scope(nn.Evaluation(), nn.Cached(m.context))
	letter := s.Input("letter", tensor.Uint8, 1, 1)
	next := s.Keep(ops.Categorical(m.logits(s, letter), 0.8, 20, nil))
	vm := notebook.Must(s.NewVM(m.On(), cudaops.Seed(1), cudaops.Outputs(next)))
	defer vm.Close()
	for i := range m.context {
		notebook.Check(vm.Let(letter, []byte{text[i]}))
		if notebook.Check(vm.RunAll()); i >= len(text)-1 {
			text += string(rune(next.Value().Data().([]int)[0]))
		}
	}
	return text
}
