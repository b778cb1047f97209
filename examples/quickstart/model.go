package main

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The classifier is a perceptron with one hidden layer:
//
//	h    = tanh(x W1 + b1)          (n x 64) -> (n x hidden)
//	logp = log softmax(h W2 + b2)   (n x hidden) -> (n x 10)
//
// trained to make the log-probability of the right digit large and the weights
// small:
//
//	loss = -mean_i <y_i, logp_i> + decay (|W1|^2 + |W2|^2)
const (
	hidden = 64
	decay  = 1e-4
)

// logProbabilities builds logp out of the images and the parameters. ops.* are
// Stheno's ops, G.* are Gorgonia's: they mix freely in one graph.
func logProbabilities(x, w1, b1, w2, b2 *G.Node) *G.Node {
	n := x.Shape()[0]
	z1 := G.Must(ops.Add(G.Must(ops.MatMul(x, w1)), G.Must(ops.Broadcast(b1, n, 0))))
	h := G.Must(G.Tanh(z1))
	z2 := G.Must(ops.Add(G.Must(ops.MatMul(h, w2)), G.Must(ops.Broadcast(b2, n, 0))))
	return G.Must(G.LogSoftMax(z2))
}

// objective builds the loss, a scalar.
func objective(logp, y, w1, w2 *G.Node) *G.Node {
	likelihood := G.Must(ops.Mean(G.Must(ops.Dot(y, logp)))) // Dot of matrices goes row by row
	norms := G.Must(ops.Add(
		G.Must(ops.Sum(G.Must(ops.Dot(w1, w1)))),
		G.Must(ops.Sum(G.Must(ops.Dot(w2, w2))))))
	penalty := G.Must(G.HadamardProd(norms, constant(decay, norms.Dtype())))
	return G.Must(ops.Add(G.Must(G.Neg(likelihood)), penalty))
}

func constant(v float64, dt tensor.Dtype) *G.Node {
	if dt == tensor.Float32 {
		return G.NewConstant(float32(v))
	}
	return G.NewConstant(v)
}

// network is the classifier's graph for n images at a time.
type network struct {
	graph      *G.ExprGraph
	x, y       *G.Node // input: images (n x 64), one-hot labels (n x 10)
	parameters G.Nodes // W1, b1, W2, b2
	loss       *G.Node
	logp       G.Value // n x 10, there after a run
}

func newNetwork(n int) *network {
	g := G.NewGraph()
	node := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
	}
	m := &network{graph: g, x: node("x", n, digits.Pixels), y: node("y", n, digits.Classes)}
	w1, b1 := node("W1", digits.Pixels, hidden), node("b1", hidden)
	w2, b2 := node("W2", hidden, digits.Classes), node("b2", digits.Classes)
	m.parameters = G.Nodes{w1, b1, w2, b2}
	logp := logProbabilities(m.x, w1, b1, w2, b2)
	m.loss = objective(logp, m.y, w1, w2)
	G.Read(logp, &m.logp)
	return m
}

// initialise draws the weights from a normal distribution of variance
// 2 / (rows + columns), which keeps the size of signals and gradients through
// the layers (Glorot and Bengio, 2010). The biases start at zero.
func (m *network) initialise(r *rand.Rand) error {
	for _, p := range m.parameters {
		deviation := 0.0
		if s := p.Shape(); s.Dims() == 2 {
			deviation = math.Sqrt(2 / float64(s[0]+s[1]))
		}
		if err := notebook.Draw(p, r, deviation); err != nil {
			return err
		}
	}
	return nil
}

// feed binds images and labels to the inputs.
func (m *network) feed(d digits.Set) error {
	x, y := d.Tensors()
	if err := G.Let(m.x, x); err != nil {
		return err
	}
	return G.Let(m.y, y)
}

// run runs the machine once over a batch and returns the loss.
func (m *network) run(vm G.VM, d digits.Set) (float64, error) {
	if err := m.feed(d); err != nil {
		return 0, err
	}
	vm.Reset()
	if err := vm.RunAll(); err != nil {
		return 0, err
	}
	return float64(m.loss.Value().Data().(float32)), nil
}

// prediction is the most probable digit and its probability.
type prediction struct {
	digit       int
	probability float64
}

// predictions reads them off the last run's logp.
func (m *network) predictions() []prediction {
	logp := m.logp.Data().([]float32)
	out := make([]prediction, len(logp)/digits.Classes)
	for i := range out {
		out[i].digit, out[i].probability = digits.Answer(logp[i*digits.Classes : (i+1)*digits.Classes])
	}
	return out
}

// accuracy is the share of predictions that name the right digit.
func accuracy(predicted []prediction, d digits.Set) float64 {
	right := 0
	for i, p := range predicted {
		if p.digit == d.Labels[i] {
			right++
		}
	}
	return float64(right) / float64(d.Len())
}
