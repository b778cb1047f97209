package cudaops

import (
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

const normEpsilon = 1e-3

// normCases are BatchNorm, which trains here, and GroupNorm.
func normCases() (list []lowered) {
	for _, shape := range [][]int{{5, 3}, {4, 1}, {2, 3, 4, 5}, {3, 2, 1, 7}, {1, 3, 2, 2}, {2, 1, 3, 3}, {7, 5, 1, 1}} {
		factors := slices.Repeat([]int{1}, len(shape))
		factors[1] = shape[1]
		list = append(list, lowered{
			name: fmt.Sprintf("batch norm of %v", shape), shapes: [][]int{shape, factors, factors},
			build: func(x ...*G.Node) (*G.Node, error) {
				y, _, _, _, err := G.BatchNorm(x[0], x[1], x[2], 0.9, normEpsilon)
				return y, err
			},
			ref: func(x ...array) array { return scaled(normalized(x[0], channel), x[1], x[2]) },
		})
	}
	for _, c := range []struct {
		shape  []int
		groups int
	}{{[]int{5, 6}, 2}, {[]int{5, 6}, 6}, {[]int{2, 6, 3, 4}, 3}, {[]int{3, 4, 2, 5}, 1}, {[]int{3, 4, 2, 5}, 4}, {[]int{1, 2, 12, 12}, 1}, {[]int{2, 4, 5}, 2}} {
		factors := slices.Repeat([]int{1}, len(c.shape))
		factors[1] = c.shape[1]
		noTape := ""
		if n := c.shape[1] / c.groups * size4(c.shape); n >= 264 {
			noTape = "moments of groups of 264 elements or more are wrong"
		}
		list = append(list, lowered{
			name: fmt.Sprintf("group norm of %v in %d", c.shape, c.groups), shapes: [][]int{c.shape, factors, factors}, noTape: noTape,
			build: func(x ...*G.Node) (*G.Node, error) {
				return G.GroupNorm(x[0], x[1], x[2], c.groups, c.shape[1], normEpsilon)
			},
			ref: func(x ...array) array {
				return scaled(normalized(x[0], func(i []int) int { return i[0]*c.groups + i[1]/(c.shape[1]/c.groups) }), x[1], x[2])
			},
		})
	}
	return list
}

// size4 is the number of elements of a channel of one sample.
func size4(shape []int) int {
	n := 1
	for _, d := range shape[2:] {
		n *= d
	}
	return n
}

func channel(index []int) int { return index[1] }

// moments returns the mean and the variance of the elements for which row returns one number.
func moments(x array, row func(index []int) int) (mean, variance map[int]float64, n float64) {
	mean, variance = map[int]float64{}, map[int]float64{}
	count := map[int]float64{}
	each(x.shape, func(i []int) { mean[row(i)] += x.at(i...); count[row(i)]++ })
	for r := range mean {
		mean[r] /= count[r]
		n = count[r]
	}
	each(x.shape, func(i []int) { d := x.at(i...) - mean[row(i)]; variance[row(i)] += d * d / count[row(i)] })
	return mean, variance, n
}

// normalized is x less the mean of its row, by the row's deviation.
func normalized(x array, row func(index []int) int) array {
	mean, variance, _ := moments(x, row)
	return generate(x.shape, func(i []int) float64 {
		return (x.at(i...) - mean[row(i)]) / math.Sqrt(variance[row(i)]+normEpsilon)
	})
}

// scaled is x times a scale and a bias.
func scaled(x, scale, bias array) array {
	return generate(x.shape, func(i []int) float64 { return x.at(i...)*scale.at(i...) + bias.at(i...) })
}

// normGraph is a BatchNorm with its gradient.
type normGraph struct {
	g       *G.ExprGraph
	x, w, y *G.Node
	read    G.Value // of y
	op      *G.BatchNormOp
}

func newNormGraph(t *testing.T, dt tensor.Dtype, shape []int) *normGraph {
	n := &normGraph{g: G.NewGraph()}
	node := testutil.Get[*G.Node](t)
	ones, zeros := slices.Repeat([]int{1}, len(shape)), slices.Repeat([]int{1}, len(shape))
	ones[1], zeros[1] = shape[1], shape[1]
	input := func(name string, shape []int, init G.InitWFn) *G.Node {
		return G.NewTensor(n.g, dt, len(shape), G.WithName(name), G.WithShape(shape...), G.WithInit(init))
	}
	n.x, n.w = input("x", shape, G.Zeroes()), input("w", shape, G.Zeroes())
	var err error
	n.y, _, _, n.op, err = G.BatchNorm(n.x, input("scale", ones, G.Ones()), input("bias", zeros, G.Zeroes()), 0.25, normEpsilon)
	testutil.Do(t, err)
	G.Read(n.y, &n.read)
	testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.HadamardProd(n.y, n.w)))), n.x))
	return n
}

// Over runs that train and then evaluate and train again, by SetTraining, BatchNorm returns
// and keeps the reference's values, and keeps them where Gorgonia's machine does.
func TestBatchNormModes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, shape := range [][]int{{6, 4}, {3, 4, 5, 2}, {4, 3, 16, 16}} {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				t.Run(fmt.Sprintf("%v %v", shape, dt), func(t *testing.T) { testBatchNormModes(t, on, dt, shape) })
			}
		}
	})
}

func testBatchNormModes(t *testing.T, on Option, dt tensor.Dtype, shape []int) {
	r := testutil.Random(t)
	n, other := newNormGraph(t, dt, shape), newNormGraph(t, dt, shape)
	vm := machine(t, n.g, on, Strict())
	var tape G.VM
	if !G.CUDA {
		tape = tapeMachine(t, other.g)
		defer tape.Close()
	}
	channels := []int{shape[1]}
	mean, variance := generate(channels, func([]int) float64 { return 0 }), generate(channels, func([]int) float64 { return 1 })
	was := true
	for run, training := range []bool{true, true, true, false, false, true, true, false} {
		if training != was { // to training anew, from the beginning
			was = training
			testutil.Do(t, n.op.SetTraining(training))
			testutil.Do(t, other.op.SetTraining(training))
			if training {
				mean, variance = mean.apply(func(float64) float64 { return 0 }), variance.apply(func(float64) float64 { return 1 })
			}
		}
		x, w := draw(r, dt, shape...), draw(r, dt, shape...)
		for i, v := range floats(t, x) { // far from 0
			setNumber(x, i, 10+v*float64(1+i%7))
		}
		for _, g := range []*normGraph{n, other} {
			testutil.Do(t, G.Let(g.x, x))
			testutil.Do(t, G.Let(g.w, w))
		}
		testutil.Do(t, vm.RunAll())
		checkBatchNorm(t, n, training, &mean, &variance, tolerance(dt))
		if tape == nil {
			continue
		}
		testutil.Do(t, tape.RunAll())
		gotMean, gotVariance := n.op.Stats()
		wantMean, wantVariance := other.op.Stats()
		equal(t, fmt.Sprint("the tape machine's mean of run ", run), gotMean, wantMean, tolerance(dt))
		equal(t, fmt.Sprint("the tape machine's variance of run ", run), gotVariance, wantVariance, 10*tolerance(dt))
		equal(t, fmt.Sprint("the tape machine's value of run ", run), n.read, other.read, 10*tolerance(dt))
		tape.Reset()
	}
}

// checkBatchNorm compares the results and the state of a run with the reference, whose running
// moments it takes along.
func checkBatchNorm(t *testing.T, n *normGraph, training bool, mean, variance *array, within float64) {
	t.Helper()
	shape := []int(n.x.Shape())
	x, w := array{shape, floats(t, n.x.Value())}, array{shape, floats(t, n.w.Value())}
	m, v, count := moments(x, channel)
	if training {
		for c := range shape[1] {
			mean.v[c] = 0.25*m[c] + 0.75*mean.v[c]
			variance.v[c] = 0.25*v[c]*count/(count-1) + 0.75*variance.v[c]
		}
	} else {
		for c := range shape[1] {
			m[c], v[c] = mean.v[c], variance.v[c]
		}
	}
	y := generate(shape, func(i []int) float64 { return (x.at(i...) - m[i[1]]) / math.Sqrt(v[i[1]]+normEpsilon) })
	level, along := make([]float64, shape[1]), make([]float64, shape[1])
	if training {
		each(shape, func(i []int) {
			level[i[1]] += w.at(i...) / count
			along[i[1]] += w.at(i...) * y.at(i...) / count
		})
	}
	dx := generate(shape, func(i []int) float64 {
		c := i[1]
		return (w.at(i...) - level[c] - y.at(i...)*along[c]) / math.Sqrt(v[c]+normEpsilon)
	})
	closeTo(t, "value", n.read, y, 10*within)
	closeTo(t, "gradient", testutil.Get[G.Value](t)(n.x.Grad()), dx, 10*within)
	gotMean, gotVariance := n.op.Stats()
	closeTo(t, "running mean", gotMean, *mean, within)
	closeTo(t, "running variance", gotVariance, *variance, 10*within)
}

// A machine that is made to evaluate takes the running moments of another that trained,
// and leaves them as they are; so does making one that trains.
func TestBatchNormEvalMode(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		n := newNormGraph(t, tensor.Float64, []int{6, 4})
		r := rand.New(rand.NewPCG(1, 9))
		testutil.Do(t, G.Let(n.x, draw(r, tensor.Float64, 6, 4)))
		testutil.Do(t, G.Let(n.w, draw(r, tensor.Float64, 6, 4)))
		testutil.Do(t, machine(t, n.g, on).RunAll())
		m, v := n.op.Stats()
		mean, variance := array{[]int{4}, floats(t, m)}, array{[]int{4}, floats(t, v)}
		for range 2 {
			testutil.Do(t, machine(t, n.g, on, EvalMode()).RunAll())
			checkBatchNorm(t, n, false, &mean, &variance, 1e-12)
		}
		machine(t, n.g, on)
		m, v = n.op.Stats()
		closeTo(t, "mean", m, mean, 0)
		closeTo(t, "variance", v, variance, 0)
	})
}

// Moments of numbers far from 0 keep their digits, and NaN and infinities stay in their
// channel.
func TestBatchNormExtremes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for dt, far := range map[tensor.Dtype]float64{tensor.Float32: 1e4, tensor.Float64: 1e8} {
			shape := []int{64, 5, 3, 3}
			n := newNormGraph(t, dt, shape)
			r := testutil.Random(t)
			x := draw(r, dt, shape...)
			for i, v := range floats(t, x) {
				switch c := i / 9 % 5; {
				case c == 0:
					v += far
				case c == 1 && i == 9:
					v = math.NaN()
				case c == 2 && i == 5*9*7+2*9:
					v = math.Inf(1)
				case c == 3:
					v = far
				}
				setNumber(x, i, v)
			}
			testutil.Do(t, G.Let(n.x, x))
			testutil.Do(t, G.Let(n.w, draw(r, dt, shape...)))
			testutil.Do(t, machine(t, n.g, on).RunAll())
			in, got := array{shape, floats(t, x)}, array{shape, floats(t, n.read)}
			want, within := normalized(in, channel), map[tensor.Dtype]float64{tensor.Float32: 2e-3, tensor.Float64: 1e-6}[dt]
			each(shape, func(i []int) {
				g, w := got.at(i...), want.at(i...)
				if c := i[1]; (c == 1 || c == 2) && !math.IsNaN(g) || c != 1 && c != 2 && !(math.Abs(g-w) <= within) {
					t.Fatalf("%v: element %v is %v, want %v", dt, i, g, w)
				}
			})
		}
	})
}

// Gorgonia's GroupNorm logs each derivative.
func quiet(t *testing.T) {
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
}
