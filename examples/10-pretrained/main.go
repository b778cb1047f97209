// Pretrained loads a model that PyTorch has trained, in the file layout of GPT-2, compares its logits with PyTorch's and writes with it.
//
//	go run ./examples/10-pretrained
//
// It reads like a notebook: run is the story, below it are the network, how the file is loaded and how it writes. testdata/make.py trained the model, on the text of
// 08-text, and recorded the logits. It fails if they differ by more than a hundred thousandth of the largest.
package main

import (
	"embed"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

//go:embed *.go testdata/*.safetensors
var files embed.FS

const title = "A pretrained model: GPT-2's file, in a store"

// The sizes in testdata/make.py, and its text.
const vocabulary, context, width, heads, layers, sentence = 128, 64, 48, 3, 2, "The Rays of Light which come from the Sun"

func main() { notebook.Main(title, files, run) }

func run(p *notebook.Page) {
	dir := notebook.Must(os.MkdirTemp("", "pretrained"))
	defer os.RemoveAll(dir)
	notebook.Check(os.CopyFS(dir, files))
	p.Heading("The file")
	f, reference := notebook.Must(safetensors.Open(dir+"/testdata/model.safetensors")), notebook.Must(safetensors.Open(dir+"/testdata/logits.safetensors"))
	defer f.Close()
	defer reference.Close()
	t := figure.Table{Caption: fmt.Sprintf("The first of %d tensors of model.safetensors", len(f.Tensors)), Header: []string{"name", "elements", "shape"}}
	for _, x := range f.Tensors[:8] {
		t.Add(x.Name, x.Dtype, fmt.Sprint(x.Shape))
	}
	p.Text("A small GPT-2 for letters, trained by PyTorch and saved as Hugging Face saves GPT-2: half-precision weights, which are (in, out), masks that are no parameters, and the embeddings a second time as lm_head.")
	p.Table(t)
	p.Heading("The same network, and its file")
	p.Text("The layers have the names of the file's tensors. What differs is told to the loader: a prefix, tensors to leave out, weights to transpose.")
	p.GoFunction("main.go", "logits", "load", "write")
	store := load(dir + "/testdata/model.safetensors")
	defer store.Close()
	p.Heading("Beside PyTorch")
	want, off, worst, largest := make([]float64, len(sentence)*vocabulary), []float64{}, 0.0, 0.0
	notebook.Check(safetensors.Elements(reference.Find("logits"), 0, want))
	s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	x := s.Input("x", tensor.Uint8, 1, len(sentence))
	y := logits(s, x)
	vm := notebook.Must(s.NewVM(p.On(), cudaops.Outputs(y)))
	defer vm.Close()
	notebook.Check(vm.Let(x, []byte(sentence)))
	notebook.Check(vm.RunAll())
	for i, v := range y.Value().Data().([]float32) {
		off = append(off, float64(v)-want[i])
		worst, largest = max(worst, math.Abs(off[i])), max(largest, math.Abs(want[i]))
	}
	last := figure.Series{Name: "a letter", Colour: figure.Blue, Dots: true, X: want[len(want)-vocabulary:], Y: off[len(off)-vocabulary:]}
	p.Figure("logits", "Logits of the letter after the sentence, on "+p.Where()+", less those that PyTorch recorded.", figure.Chart{Title: "Differences from PyTorch", XLabel: "PyTorch's logit", YLabel: "difference", Series: []figure.Series{last}})
	p.Text("For %q there are %d logits. The largest difference from PyTorch's is %.1e, where logits reach %.1f.", sentence, len(want), worst, largest)
	if !(worst <= 1e-5*largest) {
		notebook.Fail("a logit differs from PyTorch's by %g, want at most %g", worst, 1e-5*largest)
	}
	p.Heading("Writing")
	p.Listing("what it writes", write(p, store, "The "))
}

// logits guesses the letter after each one of x, batch x time, as GPT-2 does.
func logits(s *nn.Scope, x *G.Node) *G.Node {
	x = nn.Positions(s.At("wpe"), nn.Embedding(s.At("wte"), x, vocabulary, width), context)
	for l := range layers {
		x = nn.Residual(s.At("h", l), x, func(s *nn.Scope, x *G.Node) *G.Node {
			q, k, v := nn.Split3(s, nn.Linear(s.At("attn.c_attn"), nn.LayerNorm(s.At("ln_1"), x), 3*width))
			return nn.Linear(s.At("attn.c_proj"), nn.Attention(s.At("attn"), q, k, v, heads, nn.Causal()), width)
		})
		x = nn.Residual(s.At("h", l), x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.Linear(s.At("mlp.c_proj"), nn.GELUTanh(s, nn.Linear(s.At("mlp.c_fc"), nn.LayerNorm(s.At("ln_2"), x), 4*width)), width)
		})
	}
	return nn.Linear(s.At("wte").Tied(), nn.LayerNorm(s.At("ln_f"), x), vocabulary, nn.NoBias())
}

// load returns the parameters of a file in GPT-2's layout.
func load(path string) *cudaops.Store {
	store := cudaops.NewStore()
	notebook.Must(checkpoint.LoadStore(path, store, checkpoint.Rename(func(name string) string {
		if name == "lm_head.weight" || strings.HasSuffix(name, ".attn.bias") {
			return "" // the embeddings again, and a mask
		}
		return strings.TrimPrefix(name, "transformer.")
	}), checkpoint.Transposed(func(name string) bool { return strings.Contains(name, ".c_") && strings.HasSuffix(name, ".weight") })))
	return store
}

// write goes on after a text, one letter a run, which draws the next letter and keeps keys, values and position on the device.
func write(p *notebook.Page, store *cudaops.Store, text string) string {
	s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation(), nn.Cached(context))
	letter := s.Input("letter", tensor.Uint8, 1, 1)
	next := s.Keep(ops.Categorical(logits(s, letter), 0.7, nil, 0.9))
	vm := notebook.Must(s.NewVM(p.On(), cudaops.Seed(1), cudaops.Outputs(next)))
	defer vm.Close()
	for i := range context {
		notebook.Check(vm.Let(letter, []byte{text[i]}))
		if notebook.Check(vm.RunAll()); i >= len(text)-1 {
			text += string(rune(next.Value().Data().([]int)[0]))
		}
	}
	return text
}
