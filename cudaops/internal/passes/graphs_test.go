package passes

import (
	"fmt"
	"hash"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// builder makes a graph of matrices of a few rows, node by node.
type builder struct {
	g    *G.ExprGraph
	r    *rand.Rand
	dt   tensor.Dtype
	pool G.Nodes
	read []*G.Value
	keep G.Nodes
	x    G.Nodes // the inputs

	columns G.Nodes // vectors with an element for each row
}

const rows = 3

// foreign is an op of another module, which only the host has.
type foreign struct{ G.SDOp }

// WriteHash distinguishes the op from the one that it wraps.
func (f foreign) WriteHash(h hash.Hash) { h.Write([]byte("foreign")); f.SDOp.WriteHash(h) }

func (b *builder) input(cols int) *G.Node {
	v := tensor.New(tensor.Of(b.dt), tensor.WithShape(rows, cols))
	for i := range v.Size() {
		switch s := v.Data().(type) {
		case []float64:
			s[i] = b.r.NormFloat64()
		case []float32:
			s[i] = float32(b.r.NormFloat64())
		}
	}
	b.x = append(b.x, G.NewMatrix(b.g, b.dt, G.WithName(fmt.Sprint("x", len(b.pool))), G.WithShape(rows, cols), G.WithValue(v)))
	return b.x[len(b.x)-1]
}

// constant returns the constant of the graph. There is one: Gorgonia takes constants
// for the same node if they print alike, long rows cut short.
func (b *builder) constant() *G.Node {
	return b.g.AddNode(G.NewConstant(tensor.New(tensor.WithShape(rows), tensor.WithBacking(tensor.Range(b.dt, 1, rows+1)))))
}

// draw holds the parts that a node is made from: the graph so far, and one of its matrices.
type draw struct {
	*builder
	t *rapid.T
	a *G.Node
}

func (d draw) cols() int { return d.a.Shape()[1] }

// width draws a number of columns.
func (d draw) width() int { return rapid.IntRange(1, 40).Draw(d.t, "columns") }

// other draws a matrix of the same shape, often the same one.
func (d draw) other() *G.Node {
	var same G.Nodes
	for _, n := range d.pool {
		if n.Shape()[1] == d.cols() {
			same = append(same, n)
		}
	}
	return rapid.SampledFrom(same).Draw(d.t, "second operand")
}

// axes draws an axis, or none.
func (d draw) axes() []int {
	return rapid.SampledFrom([][]int{nil, {0}, {1}}).Draw(d.t, "axis")
}

// indices returns a new input of indices of rows.
func (d draw) indices() *G.Node {
	at := rapid.SliceOfN(rapid.IntRange(0, rows-1), rows, rows).Draw(d.t, "indices")
	v := tensor.New(tensor.WithShape(rows), tensor.WithBacking(at))
	return G.NewVector(d.g, tensor.Int, G.WithName(fmt.Sprint("i", len(d.pool))), G.WithShape(rows), G.WithValue(v))
}

// wide repeats a value of a row.
func (d draw) wide(n *G.Node) *G.Node { return G.Must(ops.Broadcast(n, d.width(), 1)) }

// factor returns an input of one row.
func (d draw) factor(name string) *G.Node {
	return G.NewMatrix(d.g, d.dt, G.WithName(fmt.Sprint(name, len(d.pool))), G.WithShape(1, d.cols()), G.WithInit(G.Uniform(0.5, 2)))
}

// column draws a function of a vector with an element for each row: of the rows' sums, of one drawn before, or of an input.
// Many are read on their own, too.
func (d draw) column() *G.Node {
	v := G.Must(G.Sum(d.a, 1))
	if len(d.columns) > 0 && rapid.Bool().Draw(d.t, "drawn before") {
		v = rapid.SampledFrom(d.columns).Draw(d.t, "column")
	} else if rapid.Bool().Draw(d.t, "input") {
		x := d.input(1)
		v = G.Must(G.Reshape(x, tensor.Shape{rows}))
	}
	f := rapid.SampledFrom([]func(*G.Node) (*G.Node, error){G.Tanh, G.Sigmoid, G.Sign, func(n *G.Node) (*G.Node, error) { return ops.Map("floor(a)", n) },
		func(n *G.Node) (*G.Node, error) { return ops.Map("0.5", n) }}).Draw(d.t, "function")
	v = G.Must(f(v))
	if d.columns = append(d.columns, v); rapid.Bool().Draw(d.t, "wanted") {
		d.keep = append(d.keep, v)
	}
	return v
}

// turned returns the transpose of a matrix.
func turned(n *G.Node) *G.Node { return G.Must(G.Transpose(n)) }

// nodes are the kinds of nodes that graphs are made of.
var nodes = map[string]func(d draw) *G.Node{
	"input":    func(d draw) *G.Node { return d.input(d.width()) },
	"constant": func(d draw) *G.Node { return G.Must(ops.Add(d.a, G.Must(ops.Broadcast(d.constant(), d.cols(), 1)))) },
	"tanh":     func(d draw) *G.Node { return G.Must(G.Tanh(d.a)) },
	"square":   func(d draw) *G.Node { return G.Must(G.Square(d.a)) },
	"sigmoid":  func(d draw) *G.Node { return G.Must(G.Sigmoid(d.a)) },
	"softplus": func(d draw) *G.Node { return G.Must(G.Mish(d.a)) },
	"add":      func(d draw) *G.Node { return G.Must(ops.Add(d.a, d.other())) },
	"sum of":   func(d draw) *G.Node { return G.Must(G.Add(d.a, d.other())) },
	"hadamard": func(d draw) *G.Node { return G.Must(G.HadamardProd(d.a, d.other())) },
	"scalar":   func(d draw) *G.Node { return G.Must(G.HadamardProd(d.a, G.Must(G.Mean(d.a)))) },
	"between":  func(d draw) *G.Node { return G.Must(G.MaxBetween(d.a, d.other())) },
	"compare":  func(d draw) *G.Node { return G.Must(G.Gte(d.a, d.other(), true)) },
	"bool": func(d draw) *G.Node {
		d.keep = append(d.keep, G.Must(G.Lt(d.a, d.other(), false)))
		return G.Must(G.Rectify(d.a))
	},
	"host":         func(d draw) *G.Node { return G.Must(G.ApplyOp(foreign{G.Must(G.Tanh(d.a)).Op().(G.SDOp)}, d.a)) },
	"column":       func(d draw) *G.Node { return G.Must(G.BroadcastAdd(d.a, d.column(), nil, []byte{1})) },
	"times column": func(d draw) *G.Node { return G.Must(G.BroadcastHadamardProd(d.a, d.column(), nil, []byte{1})) },
	"column's max": func(d draw) *G.Node { return G.Must(G.HadamardProd(d.a, G.Must(G.Max(d.column())))) },
	"map of few": func(d draw) *G.Node {
		return G.Must(ops.Map(rapid.SampledFrom([]string{"1", "b", "sign(a)", "select(b > 0, 1, -2)"}).Draw(d.t, "expression"), d.a, d.other()))
	},
	"mean": func(d draw) *G.Node { return d.wide(G.Must(ops.Mean(d.a, 1))) },
	"sum":  func(d draw) *G.Node { return d.wide(G.Must(G.Sum(d.a, 1))) },
	"max":  func(d draw) *G.Node { return d.wide(G.Must(G.Max(d.a, 1))) },
	"norm": func(d draw) *G.Node {
		return G.Must(G.BroadcastHadamardDiv(d.a, G.Must(G.Norm(d.a, 1, 2)), nil, []byte{1}))
	},
	"centred": func(d draw) *G.Node { return G.Must(G.BroadcastSub(d.a, G.Must(G.Mean(d.a, 0)), nil, []byte{0})) },
	"softmax": func(d draw) *G.Node { return G.Must(G.SoftMax(d.a, d.axes()...)) },
	"log softmax": func(d draw) *G.Node {
		return G.Must(G.LogSoftMax(d.a, d.axes()...))
	},
	"dropout": func(d draw) *G.Node {
		return G.Must(G.Dropout(d.a, rapid.SampledFrom([]float64{0, 0.25, 0.5}).Draw(d.t, "probability")))
	},
	"random": func(d draw) *G.Node {
		node := rapid.SampledFrom([]func(*G.ExprGraph, tensor.Dtype, float64, float64, ...int) *G.Node{G.UniformRandomNode, G.GaussianRandomNode}).Draw(d.t, "random")
		return G.Must(G.Add(node(d.g, d.dt, float64(len(d.pool)), 1e3, rows, d.cols()), d.a))
	},
	"binomial": func(d draw) *G.Node {
		return d.wide(G.BinomialRandomNode(d.g, d.dt, rapid.Float64Range(1, 9).Draw(d.t, "trials"), 0.5, rows))
	},
	"batch norm": func(d draw) *G.Node {
		y, _, _, _, err := G.BatchNorm(d.a, d.factor("scale"), d.factor("bias"), 0.5, 1e-2)
		return G.Must(y, err)
	},
	"group norm": func(d draw) *G.Node {
		return G.Must(G.GroupNorm(d.a, d.factor("scale"), d.factor("bias"), 1+(d.cols()+1)%2, d.cols(), 1e-2))
	},
	"reshape": func(d draw) *G.Node {
		flat := G.Must(G.Reshape(d.a, tensor.Shape{rows * d.cols()}))
		if rapid.Bool().Draw(d.t, "through an op") {
			flat = G.Must(ops.Add(flat, flat))
		}
		return G.Must(G.Reshape(flat, tensor.Shape{rows, d.cols()}))
	},
	"transpose": func(d draw) *G.Node { return turned(G.Must(G.Reshape(d.a, tensor.Shape{d.cols(), rows}))) },
	"ravel": func(d draw) *G.Node {
		return G.Must(G.Reshape(G.Must(G.Ravel(turned(d.a))), tensor.Shape{rows, d.cols()}))
	},
	"matmul":  func(d draw) *G.Node { return G.Must(ops.MatMul(G.Must(ops.MatMul(d.a, d.other(), ops.TransB())), d.a)) },
	"product": func(d draw) *G.Node { return G.Must(G.Mul(G.Must(G.Mul(d.a, turned(d.other()))), d.a)) },
	"layer": func(d draw) *G.Node {
		x := G.Must(G.Mul(G.Must(G.Mul(d.a, turned(d.other()))), d.a))
		switch rapid.IntRange(0, 3).Draw(d.t, "bias") {
		case 0:
			x = G.Must(G.BroadcastAdd(x, d.constant(), nil, []byte{1}))
		case 1:
			x = G.Must(G.Add(d.other(), x))
		case 2:
			x = G.Must(G.BroadcastAdd(G.Must(G.Add(x, d.a)), G.Must(G.Mean(d.a, 0)), nil, []byte{0}))
		}
		activation := rapid.SampledFrom([]func(*G.Node) (*G.Node, error){G.Rectify, G.Tanh, G.Sigmoid, G.Neg}).Draw(d.t, "activation")
		return G.Must(activation(x))
	},
	"tensordot": func(d draw) *G.Node {
		return G.Must(G.Mul(d.a, G.Must(G.Tensordot([]int{0}, []int{0}, d.a, d.other()))))
	},
	"broadcast": func(d draw) *G.Node { return G.Must(G.BroadcastAdd(d.a, d.constant(), nil, []byte{1})) },
	"concat": func(d draw) *G.Node {
		if d.cols() > 40 {
			return d.a
		}
		return G.Must(G.Concat(1, d.a, rapid.SampledFrom(d.pool).Draw(d.t, "second part"), G.Must(G.Neg(d.a))))
	},
	"by indices": func(d draw) *G.Node { return G.Must(G.ByIndices(d.a, d.indices(), 0)) },
	"slice": func(d draw) *G.Node {
		first := rapid.IntRange(0, rows-1).Draw(d.t, "row")
		return G.Must(ops.Broadcast(G.Must(G.Slice(d.a, G.S(first))), rows, 0))
	},
	"columns": func(d draw) *G.Node {
		if d.cols() < 3 {
			return d.a
		}
		return G.Must(G.Slice(d.a, nil, G.S(1, rapid.IntRange(3, d.cols()).Draw(d.t, "end"))))
	},
	"window": func(d draw) *G.Node {
		return G.Must(ops.WindowSum(d.a, rapid.IntRange(0, 50).Draw(d.t, "radius"), ops.Same()))
	},
}

// grow adds a node: an input, a constant, or an op of Stheno's or Gorgonia's on
// nodes that are there.
func (b *builder) grow(t *rapid.T) {
	a := rapid.SampledFrom(b.pool).Draw(t, "operand")
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(nodes))).Draw(t, "op")
	out := nodes[name](draw{b, t, a})
	b.pool = append(b.pool, out)
	switch rapid.IntRange(0, 9).Draw(t, "wanted") {
	case 0:
		b.read = append(b.read, new(G.Value))
		G.Read(out, b.read[len(b.read)-1])
	case 1:
		b.keep = append(b.keep, out)
	}
}

// drawGraph draws a graph, with the gradients of its inputs half of the time.
func drawGraph(t *rapid.T) *builder {
	b := drawForward(t, 25)
	if rapid.Bool().Draw(t, "gradients") {
		cost := G.Must(ops.Mean(b.pool[len(b.pool)-1]))
		if _, err := G.Grad(cost, b.pool[0]); err != nil { // the last node may not depend on the first
			t.Logf("no gradient: %v", err)
		}
	}
	return b
}

// drawForward draws a graph of at most `most` nodes, without gradients.
func drawForward(t *rapid.T, most int) *builder {
	b := &builder{
		g:  G.NewGraph(),
		r:  rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
		dt: rapid.SampledFrom([]tensor.Dtype{tensor.Float32, tensor.Float64}).Draw(t, "type"),
	}
	b.pool = G.Nodes{b.input(rapid.IntRange(1, 40).Draw(t, "columns"))}
	for range rapid.IntRange(1, most).Draw(t, "nodes") {
		b.grow(t)
	}
	return b
}
