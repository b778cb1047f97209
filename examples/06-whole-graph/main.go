// Whole graph takes a plain Gorgonia program, a perceptron with its loss and its
// gradients, and follows it through Stheno's compiler: from the nodes of the graph to
// the few launches that a GPU runs.
//
//	go run ./examples/06-whole-graph
//	go run ./examples/06-whole-graph -html out.html
//
// It reads like a notebook: chain.go starts small, model.go is the program, train.go
// trains it on the digits of data.go, passes.go shows what each pass of the compiler
// does, steps.go what each launch costs. Without a GPU it runs on the host, on fewer
// images and with narrower layers, and shows the times recorded on a GPU.
package main

import (
	"embed"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	G "gorgonia.org/gorgonia"
)

//go:embed *.go recorded.json
var files embed.FS

const title = "The whole graph: from a Gorgonia program to a few launches"

func main() { notebook.Main(title, files, run) }

// A story is the page and the program that it is about.
type story struct {
	*notebook.Page
	images int // of a batch
	widths []int
	net    *network
	vm     *cudaops.VM
}

func run(p *notebook.Page) {
	s := &story{Page: p}
	chain(s)
	program(s)
	training(s)
	graph(s)
	compile(s)
	memory(s)
	stepsHere(s)
	onGPU(s)
	learnt(s)
	notebook.Check(s.vm.Close())
}

// newVM makes Stheno's machine for a graph, on the device of the page.
func newVM(p *notebook.Page, g *G.ExprGraph, opts ...cudaops.Option) *cudaops.VM {
	return notebook.Must(stheno.NewVM(g, append(opts, p.On())...))
}
