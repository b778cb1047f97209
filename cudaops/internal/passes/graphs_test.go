package passes

import (
	"fmt"
	"hash"
	"math/rand/v2"

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
}

const rows = 3

// foreign is an op of another module, which only the host has.
type foreign struct{ G.SDOp }

// WriteHash tells the op from the one that it wraps.
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
	return G.NewMatrix(b.g, b.dt, G.WithName(fmt.Sprint("x", len(b.pool))), G.WithShape(rows, cols), G.WithValue(v))
}

// constant returns the constant of the graph. There is one: Gorgonia takes constants
// for the same node if they print alike, long rows cut short.
func (b *builder) constant() *G.Node {
	return b.g.AddNode(G.NewConstant(tensor.New(tensor.WithShape(rows), tensor.WithBacking(tensor.Range(b.dt, 1, rows+1)))))
}

// grow adds a node: an input, a constant, or an op of Stheno's or Gorgonia's on
// nodes that are there.
func (b *builder) grow(t *rapid.T) {
	a := rapid.SampledFrom(b.pool).Draw(t, "operand")
	cols := a.Shape()[1]
	other := func() *G.Node { // of the same shape, often a itself
		var same G.Nodes
		for _, n := range b.pool {
			if n.Shape()[1] == cols {
				same = append(same, n)
			}
		}
		return rapid.SampledFrom(same).Draw(t, "second operand")
	}
	width := rapid.IntRange(1, 40)
	var out *G.Node
	switch rapid.SampledFrom([]string{"input", "constant", "tanh", "square", "add", "add", "hadamard", "mean", "reshape", "transpose", "matmul", "window",
		"host", "softmax", "logsoftmax", "max", "sigmoid", "compare", "sum", "product", "broadcast", "slice"}).Draw(t, "op") {
	case "input":
		out = b.input(width.Draw(t, "columns"))
	case "constant":
		out = G.Must(ops.Add(a, G.Must(ops.Broadcast(b.constant(), cols, 1))))
	case "tanh":
		out = G.Must(G.Tanh(a))
	case "square":
		out = G.Must(G.Square(a))
	case "add":
		out = G.Must(ops.Add(a, other()))
	case "hadamard":
		out = G.Must(G.HadamardProd(a, other()))
	case "mean":
		out = G.Must(ops.Broadcast(G.Must(ops.Mean(a, 1)), width.Draw(t, "columns"), 1))
	case "reshape":
		flat := G.Must(G.Reshape(a, tensor.Shape{rows * cols}))
		if rapid.Bool().Draw(t, "through an op") {
			flat = G.Must(ops.Add(flat, flat))
		}
		out = G.Must(G.Reshape(flat, tensor.Shape{rows, cols}))
	case "transpose":
		out = G.Must(G.Transpose(G.Must(G.Reshape(a, tensor.Shape{cols, rows}))))
	case "matmul":
		out = G.Must(ops.MatMul(G.Must(ops.MatMul(a, other(), ops.TransB())), a))
	case "host":
		out = G.Must(G.ApplyOp(foreign{G.Must(G.Tanh(a)).Op().(G.SDOp)}, a))
	case "softmax":
		out = G.Must(G.SoftMax(a, rapid.SampledFrom([][]int{nil, {0}, {1}}).Draw(t, "axis")...))
	case "logsoftmax":
		out = G.Must(G.LogSoftMax(a, rapid.SampledFrom([][]int{nil, {0}, {1}}).Draw(t, "axis")...))
	case "max":
		out = G.Must(ops.Broadcast(G.Must(G.Max(a, 1)), width.Draw(t, "columns"), 1))
	case "sigmoid":
		out = G.Must(G.Sigmoid(a))
	case "compare":
		out = G.Must(G.Gte(a, other(), true))
	case "sum":
		out = G.Must(ops.Broadcast(G.Must(G.Sum(a, 1)), width.Draw(t, "columns"), 1))
	case "product":
		out = G.Must(G.Mul(G.Must(G.Mul(a, G.Must(G.Transpose(other())))), a))
	case "broadcast":
		out = G.Must(G.BroadcastAdd(a, b.constant(), nil, []byte{1}))
	case "slice":
		first := rapid.IntRange(0, rows-1).Draw(t, "row")
		out = G.Must(ops.Broadcast(G.Must(G.Slice(a, G.S(first))), rows, 0))
	case "window":
		out = G.Must(ops.WindowSum(a, rapid.IntRange(0, 50).Draw(t, "radius"), ops.Same()))
	}
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
	b := &builder{
		g:  G.NewGraph(),
		r:  rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
		dt: rapid.SampledFrom([]tensor.Dtype{tensor.Float32, tensor.Float64}).Draw(t, "type"),
	}
	b.pool = G.Nodes{b.input(rapid.IntRange(1, 40).Draw(t, "columns"))}
	for range rapid.IntRange(1, 25).Draw(t, "nodes") {
		b.grow(t)
	}
	if rapid.Bool().Draw(t, "gradients") {
		cost := G.Must(ops.Mean(b.pool[len(b.pool)-1]))
		if _, err := G.Grad(cost, b.pool[0]); err != nil { // the last node may not depend on the first
			t.Logf("no gradient: %v", err)
		}
	}
	return b
}
