package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is the program: its graph, its inputs and its outputs.
type network struct {
	graph        *G.ExprGraph
	sizes                // of a batch
	letters      int     // kinds
	x            *G.Node // letters, by number (lines x length)
	h0, c0       *G.Node // the cells' memory at the beginning (lines x hidden)
	parameters   G.Nodes // table, recurrent, weights, bias
	next         *G.Node // logarithms of the next letters' probabilities (length lines x letters)
	logp, hT, cT G.Value // of next, and the cells' memory at the end

	y, loss *G.Node // the letters that come next, and their mean cost, with withLoss
}

// newNetwork builds a recurrent network for lines of letters: a layer of cells takes a letter after the
// other, and from what it remembers then, a layer of sums guesses the next one. In training, dropout hides a part
// of a letter's vector, and of the memory from the guess, so that the network cannot learn the text by heart.
func newNetwork(s sizes, letters int, dropout float64) *network {
	g := G.NewGraph()
	net := &network{graph: g, sizes: s, letters: letters}
	net.x = G.NewMatrix(g, tensor.Int, G.WithName("x"), G.WithShape(s.lines, s.length))
	net.h0 = G.NewMatrix(g, tensor.Float32, G.WithName("h0"), G.WithShape(s.lines, s.hidden))
	net.c0 = G.NewMatrix(g, tensor.Float32, G.WithName("c0"), G.WithShape(s.lines, s.hidden))
	table, recurrent := net.parameter("table", letters, 4*s.hidden), net.parameter("recurrent", s.hidden, 4*s.hidden)
	weights, bias := net.parameter("weights", s.hidden, letters), net.parameter("bias", letters)

	in := G.Must(G.ByIndices(table, net.inOrder(net.x), 0)) // the vector of each letter
	if dropout > 0 {
		in = G.Must(G.Dropout(in, dropout))
	}
	in = G.Must(G.Reshape(in, tensor.Shape{s.length, s.lines, 4 * s.hidden}))
	h, c := net.h0, net.c0
	remembered := make(G.Nodes, s.length)
	for t := range s.length {
		gates := G.Must(G.Add(G.Must(G.Slice(in, G.S(t))), G.Must(G.Mul(h, recurrent))))
		h, c = net.cell(gates, c)
		remembered[t] = G.Must(G.Reshape(h, tensor.Shape{1, s.lines, s.hidden}))
	}
	G.Read(h, &net.hT)
	G.Read(c, &net.cT)
	all := G.Must(G.Reshape(G.Must(G.Concat(0, remembered...)), tensor.Shape{s.length * s.lines, s.hidden}))
	if dropout > 0 {
		all = G.Must(G.Dropout(all, dropout))
	}
	net.next = G.Must(G.LogSoftMax(G.Must(G.BroadcastAdd(G.Must(G.Mul(all, weights)), bias, nil, []byte{0}))))
	G.Read(net.next, &net.logp)
	return net
}

// cell is a layer of long short-term memory (Hochreiter and Schmidhuber, 1997). A cell remembers c. Its gates, between 0
// and 1, determine how much of it is kept, how much new is added, and how much of it is shown.
func (net *network) cell(gates, c *G.Node) (h, newC *G.Node) {
	gates = G.Must(G.Reshape(gates, tensor.Shape{net.lines, 4, net.hidden}))
	part := func(i int) *G.Node { return G.Must(G.Slice(gates, nil, G.S(i))) }
	keep, add, show := G.Must(G.Sigmoid(part(0))), G.Must(G.Sigmoid(part(1))), G.Must(G.Sigmoid(part(2)))
	new := G.Must(G.Tanh(part(3)))
	c = G.Must(G.Add(G.Must(G.HadamardProd(keep, c)), G.Must(G.HadamardProd(add, new))))
	return G.Must(G.HadamardProd(show, G.Must(G.Tanh(c)))), c
}

// withLoss adds the loss, the mean cost of the letters that really come next.
func (net *network) withLoss() *network {
	net.y = G.NewMatrix(net.graph, tensor.Int, G.WithName("y"), G.WithShape(net.lines, net.length))
	ones := make([]float32, net.letters*net.letters)
	for i := range net.letters {
		ones[i*(net.letters+1)] = 1
	}
	identity := G.NewConstant(tensor.New(tensor.WithShape(net.letters, net.letters), tensor.WithBacking(ones)))
	chosen := G.Must(G.ByIndices(identity, net.inOrder(net.y), 0)) // 1 at the letter, 0 elsewhere
	net.loss = G.Must(G.Neg(G.Must(G.Mean(G.Must(G.Sum(G.Must(G.HadamardProd(chosen, net.next)), 1))))))
	return net
}

// inOrder is lines of letters as one row, the first letters of all lines in front: as the cells take them.
func (net *network) inOrder(lines *G.Node) *G.Node {
	return G.Must(G.Reshape(G.Must(G.Transpose(lines, 1, 0)), tensor.Shape{net.length * net.lines}))
}

func (net *network) parameter(name string, shape ...int) *G.Node {
	p := G.NewTensor(net.graph, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
	net.parameters = append(net.parameters, p)
	return p
}

// size is how many numbers there are to learn.
func (net *network) size() (n int) {
	for _, p := range net.parameters {
		n += p.Shape().TotalSize()
	}
	return n
}

// initialise draws the weights and forgets everything. The gates that keep begin more open than shut, and the
// bias is set to the frequencies of the letters: the guesses begin where counting single letters ends.
func (net *network) initialise(r *rand.Rand, read []int) {
	often := make([]float64, net.letters)
	for _, letter := range read {
		often[letter]++
	}
	normal := func(int) float64 { return r.NormFloat64() / math.Sqrt(float64(net.hidden)) }
	for k, draw := range []func(i int) float64{
		func(i int) float64 { // table: its bias is a part of each row
			if i/net.hidden%4 == 0 {
				return 1 + r.NormFloat64()/2
			}
			return r.NormFloat64() / 2
		},
		normal, normal,
		func(i int) float64 { return math.Log((often[i] + 1) / float64(len(read)+net.letters)) },
	} {
		notebook.Check(notebook.Fill(net.parameters[k], draw))
	}
	net.forget()
}

// forget makes the cells begin with nothing remembered.
func (net *network) forget() {
	for _, n := range []*G.Node{net.h0, net.c0} {
		notebook.Check(notebook.Fill(n, func(int) float64 { return 0 }))
	}
}

// goOn makes the cells begin with their memory at the end of the last run.
func (net *network) goOn() {
	notebook.Check(G.Let(net.h0, net.hT))
	notebook.Check(G.Let(net.c0, net.cT))
}

// program shows the network.
func program(s *story) {
	s.Heading("The network")
	s.net = newNetwork(s.sizes, len(s.text.letters), s.dropout).withLoss()
	s.Text(`A recurrent network reads letter by letter and can remember a letter however long ago it was. It has %d cells that remember a number each; what a letter does to them is learnt. The program is plain Gorgonia, with a node
		for every op on every letter of a line, %d in all before Grad doubles them:`, s.hidden, len(s.net.graph.AllNodes()))
	s.GoFunction("model.go", "newNetwork", "cell", "withLoss")
	s.Text("There are %s numbers to learn. The rows of the letters' table take the place of a product with a vector of one 1.", fmt.Sprint(s.net.size()))
}
