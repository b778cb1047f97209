package graphspec

import (
	"fmt"
	"math"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rowwise are the programs on rows at the sizes that are timed.
func rowwise() (cases []Case) {
	for _, columns := range []int{128, 1000, 4096, 32768} {
		const rows = 16384
		for _, name := range []string{"softmax", "log-softmax", "layer norm"} {
			cases = append(cases, Rowwise(name, rows, columns), RowwiseGradient(name, rows, columns))
		}
		cases = append(cases, CrossEntropy(rows, columns))
	}
	return cases
}

// rowFuncs are the programs that map rows to rows, by name.
var rowFuncs = map[string]struct {
	ops   int64 // for each element, the gradient left out
	build func(x *G.Node) *G.Node
	// value computes y from x, and gradient computes dx from dy at x, where value is y.
	value    func(x, y []float64)
	gradient func(x, y, dy, dx []float64)
}{
	"softmax":     {5, func(x *G.Node) *G.Node { return G.Must(G.SoftMax(x)) }, softmax, softmaxGradient},
	"log-softmax": {5, func(x *G.Node) *G.Node { return G.Must(G.LogSoftMax(x)) }, logSoftmax, logSoftmaxGradient},
	"layer norm":  {6, layerNorm, normalize, normalizeGradient},
}

// Rowwise is a program on the rows of a matrix, by name.
func Rowwise(name string, rows, columns int) Case {
	f, shape := rowFuncs[name], tensor.Shape{rows, columns}
	return Case{
		Name: name, Size: fmt.Sprintf("%dx%d", rows, columns), Rows: rows, Flops: f.ops * int64(shape.TotalSize()), Tolerance: 3e-5,
		Inputs:  []Input{{Name: "x", Shape: shape}},
		Outputs: []Output{{Name: "y", Elements: columns}},
		Build:   func(in G.Nodes) G.Nodes { return G.Nodes{f.build(in[0])} },
		Row:     func(in, out [][]float64, _ *Decisions) { f.value(in[0], out[0]) },
	}
}

// RowwiseGradient is that program with the weighted sum of its elements as the loss, and the
// gradient by the matrix.
func RowwiseGradient(name string, rows, columns int) Case {
	f, c := rowFuncs[name], Rowwise(name, rows, columns)
	c.Name += ", gradient"
	c.Flops *= 2
	c.Inputs = append(c.Inputs, Input{Name: "w", Shape: c.Inputs[0].Shape, Kind: "positive"})
	c.Outputs = []Output{{Name: "loss", Elements: 1, Sum: true}, {Name: "dx", Elements: columns}}
	c.Build = func(in G.Nodes) G.Nodes {
		return gradients(G.Must(G.Sum(G.Must(G.HadamardProd(f.build(in[0]), in[1])))), in[0])
	}
	c.Row = func(in, out [][]float64, _ *Decisions) {
		y := make([]float64, columns)
		f.value(in[0], y)
		out[0][0] = dot(y, in[1])
		f.gradient(in[0], y, in[1], out[1])
	}
	return c
}

// CrossEntropy is the mean over rows of the cross-entropy between their softmax and
// classes, one-hot, and its gradient by the matrix.
func CrossEntropy(rows, columns int) Case {
	shape := tensor.Shape{rows, columns}
	return Case{
		Name: "cross-entropy, gradient", Size: fmt.Sprintf("%dx%d", rows, columns), Rows: rows, Flops: 10 * int64(shape.TotalSize()), Tolerance: 3e-5,
		Inputs:  []Input{{Name: "x", Shape: shape}, {Name: "classes", Shape: shape, Kind: "classes"}},
		Outputs: []Output{{Name: "loss", Elements: 1, Sum: true}, {Name: "dx", Elements: columns}},
		Build: func(in G.Nodes) G.Nodes {
			likelihood := G.Must(G.HadamardProd(G.Must(G.LogSoftMax(in[0])), in[1]))
			return gradients(G.Must(G.Mean(G.Must(G.Neg(G.Must(G.Sum(likelihood, 1)))))), in[0])
		},
		Row: func(in, out [][]float64, _ *Decisions) {
			out[0][0] = crossEntropy(in[0], in[1], float64(rows), out[1])
		},
	}
}

// layerNorm subtracts the mean of each row and divides by its standard deviation.
func layerNorm(x *G.Node) *G.Node {
	centred := G.Must(G.BroadcastSub(x, G.Must(G.Mean(x, 1)), nil, []byte{1}))
	variance := G.Must(G.Mean(G.Must(G.Square(centred)), 1))
	deviation := G.Must(G.Sqrt(G.Must(G.Add(variance, G.NewConstant(float32(epsilon))))))
	return G.Must(G.BroadcastHadamardDiv(centred, deviation, nil, []byte{1}))
}

// epsilon keeps layerNorm from dividing by zero.
const epsilon = 1e-5

// crossEntropy returns the cross-entropy of one of n rows, and writes its gradient.
func crossEntropy(x, classes []float64, n float64, dx []float64) (loss float64) {
	y := make([]float64, len(x))
	logSoftmax(x, y)
	for i, class := range classes {
		loss -= y[i] * class / n
		dx[i] = (math.Exp(y[i]) - class) / n
	}
	return loss
}

func softmax(x, y []float64) {
	most := slices.Max(x)
	for i, v := range x {
		y[i] = math.Exp(v - most)
	}
	total := sum(y)
	for i := range y {
		y[i] /= total
	}
}

func softmaxGradient(_, y, dy, dx []float64) {
	inner := dot(y, dy)
	for i := range dx {
		dx[i] = y[i] * (dy[i] - inner)
	}
}

func logSoftmax(x, y []float64) {
	most, total := slices.Max(x), 0.0
	for _, v := range x {
		total += math.Exp(v - most)
	}
	log := most + math.Log(total)
	for i, v := range x {
		y[i] = v - log
	}
}

func logSoftmaxGradient(_, y, dy, dx []float64) {
	total := sum(dy)
	for i := range dx {
		dx[i] = dy[i] - math.Exp(y[i])*total
	}
}

// normalize returns layerNorm of a row.
func normalize(x, y []float64) {
	n := float64(len(x))
	mean := sum(x) / n
	for i, v := range x {
		y[i] = v - mean
	}
	deviation := math.Sqrt(dot(y, y)/n + epsilon)
	for i := range y {
		y[i] /= deviation
	}
}

func normalizeGradient(x, y, dy, dx []float64) {
	n := float64(len(x))
	mean, variance := sum(x)/n, 0.0
	for _, v := range x {
		variance += (v - mean) * (v - mean) / n
	}
	level, along, deviation := sum(dy)/n, dot(y, dy)/n, math.Sqrt(variance+epsilon)
	for i := range dx {
		dx[i] = (dy[i] - level - y[i]*along) / deviation
	}
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}

func dot(x, y []float64) (s float64) {
	for i, v := range x {
		s += v * y[i]
	}
	return s
}
