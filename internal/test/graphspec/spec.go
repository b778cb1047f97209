// Package graphspec has whole programs, as users of Gorgonia write them, as cases of tests and
// benches: forward passes, losses and gradients, each with a reference in float64 and with the
// least that it must move and compute. All are float32.
package graphspec

import (
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Case is a program at one size. It works on rows, such as the samples of a batch: its outputs
// follow from the outputs of each row.
type Case struct {
	Name, Size string // "softmax", "16384x1000"
	Rows       int
	Inputs     []Input
	Outputs    []Output
	// Build applies the program to the inputs and returns the outputs.
	Build func(in gorgonia.Nodes) gorgonia.Nodes
	// Row computes the part of one row in every output, by the plainest loops, with the decisions
	// in d. out is zero before.
	Row func(in, out [][]float64, d *Decisions)
	// Flops is the number of operations on elements; a function counts as one.
	Flops int64
	// Tolerance is the largest relative error of an output, see [Case.Check].
	Tolerance float64
}

// Input is a tensor with the rows along its first axis.
type Input struct {
	Name  string       `json:"name"`
	Shape tensor.Shape `json:"shape"`
	Whole bool         `json:"whole"` // instead, every row reads all of it
	// Kind names the numbers: "positive", "weights", "classes" or "zeros"; "" are random numbers in [-1, 1).
	Kind string `json:"kind"`
}

// kinds make the numbers of a row, or of all of a Whole input, of random ones in [-1, 1).
var kinds = map[string]func(row []float32){"": func([]float32) {}, "positive": positive, "weights": weights, "classes": oneHot, "zeros": func(row []float32) { clear(row) }}

// Output is a tensor with as many elements for each row.
type Output struct {
	Name     string
	Elements int
	Sum      bool // instead, the sum over all rows
}

// All returns the cases that are timed.
func All() []Case {
	return slices.Concat(chains(), rowwise(), []Case{MLP(128, 784, 512, 512, 10), MLP(4096, 784, 512, 512, 10), Convnet(100, example), Convnet(2048, example)})
}

// Bytes is the least traffic: the inputs read once, the outputs written once.
func (c Case) Bytes() int64 {
	n := 0
	for _, in := range c.Inputs {
		n += in.Shape.TotalSize()
	}
	for _, out := range c.Outputs {
		n += c.length(out)
	}
	return 4 * int64(n)
}

// length returns the number of elements of an output.
func (c Case) length(o Output) int {
	if o.Sum {
		return o.Elements
	}
	return c.Rows * o.Elements
}

// Description has, as JSON, all that another library needs to time a program.
type Description struct {
	Name   string  `json:"op"`
	Size   string  `json:"case"`
	Dtype  string  `json:"dtype"`
	Inputs []Input `json:"inputs"`
	Wanted []int   `json:"wanted"` // the inputs by which the gradient is an output

	// Of a training step:
	Rule        string  `json:"rule,omitempty"` // "SGD" or "Adam"
	Rate        float64 `json:"rate,omitempty"`
	FromHost    bool    `json:"from_host,omitempty"`
	Pageable    bool    `json:"pageable,omitempty"`
	UpdateAlone bool    `json:"update_alone,omitempty"`
	Precision   string  `json:"precision,omitempty"` // of products, "" for full
}

// Describe describes the program.
func (c Case) Describe() Description {
	d := Description{Name: c.Name, Size: c.Size, Dtype: kernels.Float32.String(), Inputs: c.Inputs, Wanted: []int{}}
	for i, in := range c.Inputs {
		if slices.ContainsFunc(c.Outputs, func(o Output) bool { return o.Name == "d"+in.Name }) {
			d.Wanted = append(d.Wanted, i)
		}
	}
	return d
}

// Graph builds the program's graph, with values bound to the inputs, and returns its outputs.
func (c Case) Graph(in []gorgonia.Value) (*gorgonia.ExprGraph, gorgonia.Nodes) {
	g, nodes := c.nodes(in)
	return g, c.Build(nodes)
}

// nodes makes a graph of the inputs alone, bound to values.
func (c Case) nodes(in []gorgonia.Value) (*gorgonia.ExprGraph, gorgonia.Nodes) {
	g := gorgonia.NewGraph()
	nodes := make(gorgonia.Nodes, len(in))
	for i, v := range in {
		nodes[i] = gorgonia.NewTensor(g, tensor.Float32, len(c.Inputs[i].Shape),
			gorgonia.WithShape(c.Inputs[i].Shape...), gorgonia.WithName(c.Inputs[i].Name), gorgonia.WithValue(v))
	}
	return g, nodes
}

// Values returns values of the inputs, made by repeating a block of random numbers in [-1, 1) that
// begins at another place for each input.
func (c Case) Values(random []float32) []gorgonia.Value {
	in := make([]gorgonia.Value, len(c.Inputs))
	for i, input := range c.Inputs {
		v, memory := values.New(kernels.Float32, input.Shape)
		x := kernels.Elements[float32](memory)
		row := len(x)
		if !input.Whole {
			row /= c.Rows
		}
		kernels.Parallel(int64(len(x)/row), max(1, 1<<16/int64(row)), func(lo, hi int64) {
			for r := lo; r < hi; r++ {
				part := x[r*int64(row) : (r+1)*int64(row)]
				from := (r*int64(row) + int64(i)*1_000_003) % int64(len(random))
				for rest := part; len(rest) > 0; from = 0 {
					rest = rest[copy(rest, random[from:]):]
				}
				kinds[input.Kind](part)
			}
		})
		in[i] = v
	}
	return in
}

// positive makes numbers in [0, 1).
func positive(row []float32) {
	for i, x := range row {
		row[i] = (x + 1) / 2
	}
}

// weights makes small numbers, as of a layer's weights.
func weights(row []float32) {
	for i, x := range row {
		row[i] = x / 16
	}
}

// oneHot makes the encoding of a random class.
func oneHot(row []float32) {
	class := int(float64(row[0]+1) / 2 * float64(len(row)))
	clear(row)
	row[min(class, len(row)-1)] = 1
}

// gradients returns the loss and its derivatives.
func gradients(loss *gorgonia.Node, by ...*gorgonia.Node) gorgonia.Nodes {
	derivatives, err := gorgonia.Grad(loss, by...)
	if err != nil {
		panic(err) // as in gorgonia.Must: the programs are ours
	}
	return append(gorgonia.Nodes{loss}, derivatives...)
}
