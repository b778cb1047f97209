package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fraction is the random number of an element.
func fraction(dt tensor.Dtype, seed uint64, run, stream, element int) float64 {
	d, _ := dtypeOf(dt)
	return exprtest.Random(d, int64(seed), int64(run), stream, uint64(element))
}

// rounded is a number as an element type has it.
func rounded(dt tensor.Dtype, x float64) float64 {
	if dt == tensor.Float32 {
		return float64(float32(x))
	}
	return x
}

// dropped returns the elements after a Dropout.
func dropped(dt tensor.Dtype, x []float64, p float64, seed uint64, run, stream int) []float64 {
	y, keep := make([]float64, len(x)), rounded(dt, 1-p)
	for i, v := range x {
		if fraction(dt, seed, run, stream, i) < keep {
			y[i] = rounded(dt, v/keep)
		}
	}
	return y
}

// dropGraph is a chain of Dropouts between sines, read, and its gradient.
type dropGraph struct {
	g     *G.ExprGraph
	x, w  *G.Node
	drops G.Nodes
	reads []G.Value
}

func newDropGraph(t *testing.T, dt tensor.Dtype, shape []int, p ...float64) *dropGraph {
	node := testutil.Get[*G.Node](t)
	d := &dropGraph{g: G.NewGraph(), reads: make([]G.Value, len(p))}
	r := rand.New(rand.NewPCG(3, 4))
	d.x = G.NewTensor(d.g, dt, len(shape), G.WithName("x"), G.WithShape(shape...), G.WithValue(draw(r, dt, shape...)))
	d.w = G.NewTensor(d.g, dt, len(shape), G.WithName("w"), G.WithShape(shape...), G.WithValue(draw(r, dt, shape...)))
	y := d.x
	for i, probability := range p {
		if i > 0 {
			y = node(G.Neg(y))
		}
		y = node(G.Dropout(y, probability))
		d.drops = append(d.drops, y)
		G.Read(y, &d.reads[i])
	}
	testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.HadamardProd(y, d.w)))), d.x))
	return d
}

// check compares a run with the reference.
func (d *dropGraph) check(t *testing.T, dt tensor.Dtype, seed uint64, run int, p ...float64) {
	t.Helper()
	y, dx := floats(t, d.x.Value()), floats(t, d.w.Value())
	for i, probability := range p {
		if y = dropped(dt, y, probability, seed, run, i+1); !slices.Equal(floats(t, d.reads[i]), y) {
			t.Fatalf("dropout %d of run %d is not the reference", i, run)
		}
		for k := range y {
			y[k] = -y[k]
		}
	}
	for i, probability := range slices.Backward(p) {
		dx = dropped(dt, dx, probability, seed, run, i+1)
		for k := range dx {
			if i > 0 {
				dx[k] = -dx[k]
			}
		}
	}
	if got := floats(t, testutil.Get[G.Value](t)(d.x.Grad())); !slices.Equal(got, dx) {
		t.Fatalf("the gradient of run %d is not the reference", run)
	}
}

// Dropouts keep the elements that the reference keeps, to the bit, others in each run and in
// each of them, and the same forward and backward.
func TestDropout(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, shape := range [][]int{{1}, {7}, {33, 5}, {64, 64}, {3, 4, 5, 6}, {200, 77}} {
				p, seed := []float64{0.25, 0.5, 0.1}, testutil.Seed(t)
				d := newDropGraph(t, dt, shape, p...)
				vm := machine(t, d.g, on, Strict(), Seed(seed))
				for run := range 3 {
					testutil.Do(t, vm.RunAll())
					d.check(t, dt, seed, run, p...)
				}
			}
		}
	})
}

// Dropouts that keep all or nothing, by their probability or as they evaluate.
func TestDropoutEdges(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, c := range []struct {
				p        float64
				training bool
				factor   float64 // of all elements
			}{{0, true, 1}, {1, true, 0}, {0.5, false, 1}, {1, false, 1}} {
				d := newDropGraph(t, dt, []int{5, 9}, c.p)
				vm := machine(t, d.g, on, Strict())
				testutil.Do(t, d.drops[0].Op().(G.TrainModeOp).SetTraining(c.training))
				testutil.Do(t, vm.RunAll())
				for what, values := range map[string][2]G.Value{"value": {d.reads[0], d.x.Value()}, "gradient": {testutil.Get[G.Value](t)(d.x.Grad()), d.w.Value()}} {
					got, want := floats(t, values[0]), floats(t, values[1])
					for i := range got {
						if got[i] != want[i]*c.factor {
							t.Fatalf("%s of probability %v, training %v: element %d is %v, want %v", what, c.p, c.training, i, got[i], want[i]*c.factor)
						}
					}
				}
			}
			const seed = 11
			d := newDropGraph(t, dt, []int{5, 9}, 0.5)
			vm := machine(t, d.g, on, Seed(seed))
			for run, training := range []bool{true, false, true} {
				testutil.Do(t, d.drops[0].Op().(G.TrainModeOp).SetTraining(training))
				testutil.Do(t, vm.RunAll())
				d.check(t, dt, seed, run, map[bool]float64{true: 0.5}[training])
			}
		}
	})
}

// A dropped element is 0 and has the gradient 0, be it NaN or infinite.
func TestDropoutOfExtremes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		d := newDropGraph(t, tensor.Float32, []int{300}, 0.5)
		x := d.x.Value().(*tensor.Dense)
		for i := range x.Size() {
			setNumber(x, i, []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i%3])
		}
		vm := machine(t, d.g, on, Seed(5))
		testutil.Do(t, vm.RunAll())
		for i, got := range floats(t, d.reads[0]) {
			kept := fraction(tensor.Float32, 5, 0, 1, i) < 0.5
			if dropped := got == 0; dropped == kept {
				t.Fatalf("element %d, %v, is kept: %v, and is now %v", i, floats(t, x)[i], kept, got)
			}
		}
	})
}

// Machines of one seed draw the same numbers, those of others, or of none, others.
func TestSeed(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		numbers := func(opts ...Option) []float64 {
			g := G.NewGraph()
			n := G.UniformRandomNode(g, tensor.Float64, 0, 1, 100)
			testutil.Do(t, machine(t, g, append(opts, on, Strict())...).RunAll())
			return floats(t, n.Value())
		}
		lists := [][]float64{numbers(Seed(1)), numbers(Seed(2)), numbers(Seed(1 << 40)), numbers(), numbers()}
		if !slices.Equal(lists[0], numbers(Seed(1))) {
			t.Error("one seed gives different numbers")
		}
		for i := range lists {
			for k := range i {
				if slices.Equal(lists[i], lists[k]) {
					t.Errorf("machines %d and %d draw the same numbers", i, k)
				}
			}
		}
	})
}

// chiSquared fails if counts are so far from what is expected that it happens once in a
// million times.
func chiSquared(t *testing.T, what string, counts, expected []float64) {
	t.Helper()
	x := stat.ChiSquare(counts, expected)
	if p := mathext.GammaIncRegComp(float64(len(counts)-1)/2, x/2); !(p > 1e-6) || !(p < 1-1e-6) {
		t.Errorf("%s: chi-square %.1f of %d bins, which has probability %.3g", what, x, len(counts), p)
	}
}

// random returns the elements of random tensors over some runs.
func randomRuns(t *testing.T, on Option, runs int, nodes ...func(g *G.ExprGraph) *G.Node) [][]float64 {
	g := G.NewGraph()
	var list G.Nodes
	for _, node := range nodes {
		list = append(list, node(g))
	}
	vm, drawn := machine(t, g, on, Strict(), Seed(2024)), make([][]float64, len(nodes))
	for range runs {
		testutil.Do(t, vm.RunAll())
		for i, n := range list {
			drawn[i] = append(drawn[i], floats(t, n.Value())...)
		}
	}
	return drawn
}

// Uniform numbers are spread evenly, never reach their limit, and have nothing to do with
// those before them, of another op or of another run.
func TestUniform(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const n, bins = 100_000, 256
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			drawn := randomRuns(t, on, 2, // two of one shape would be one node
				func(g *G.ExprGraph) *G.Node { return G.UniformRandomNode(g, dt, -2, 6, n) },
				func(g *G.ExprGraph) *G.Node { return G.UniformRandomNode(g, dt, -2, 6, n/100, 100) })
			expected := slices.Repeat([]float64{2 * n / bins}, bins)
			for k, x := range drawn {
				counts, pairs := make([]float64, bins), make([]float64, bins)
				for i, v := range x {
					if !(-2 <= v && v < 6) {
						t.Fatalf("element %d is %v", i, v)
					}
					if i%97 == 0 && v != rounded(dt, -2+8*fraction(dt, 2024, i/n, k+1, i%n)) {
						t.Fatalf("element %d of node %d, %v, is not the reference", i, k, v)
					}
					counts[int((v+2)/8*bins)]++
					next := x[(i+1)%len(x)]
					pairs[int((v+2)/8*16)*16+int((next+2)/8*16)]++
				}
				chiSquared(t, "uniform", counts, expected)
				chiSquared(t, "pairs of neighbours", pairs, expected)
				within(t, "mean", stat.Mean(x, nil), 2, 5*8/math.Sqrt(12*2*n))
				within(t, "variance", stat.Variance(x, nil), 64./12, 5*64/math.Sqrt(180*2*n))
			}
			within(t, "correlation of two ops", stat.Correlation(drawn[0], drawn[1], nil), 0, 5/math.Sqrt(2*n))
			within(t, "correlation of two runs", stat.Correlation(drawn[0][:n], drawn[0][n:], nil), 0, 5/math.Sqrt(n))
		}
	})
}

func within(t *testing.T, what string, got, want, distance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= distance) {
		t.Errorf("%s is %v, want %v to %v", what, got, want-distance, want+distance)
	}
}

// A range that rounding would close stays open.
func TestUniformStaysBelow(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			low := 1.0
			high := low + map[tensor.Dtype]float64{tensor.Float32: 0x1p-22, tensor.Float64: 0x1p-51}[dt]
			x := randomRuns(t, on, 1, func(g *G.ExprGraph) *G.Node { return G.UniformRandomNode(g, dt, low, high, 1000) })[0]
			if most := slices.Max(x); most >= high || slices.Min(x) != low || most == low {
				t.Errorf("%v: numbers from %v to %v, want [%v, %v)", dt, slices.Min(x), most, low, high)
			}
		}
	})
}

// Normal numbers have the distribution, with its tails, and mean and deviation.
func TestGaussian(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const n = 200_000
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			drawn := randomRuns(t, on, 1,
				func(g *G.ExprGraph) *G.Node { return G.GaussianRandomNode(g, dt, 3, 0.5, n/100, 100) },
				func(g *G.ExprGraph) *G.Node { return G.GaussianRandomNode(g, dt, 3, 0.5, n) })
			z := drawn[0]
			for i := range z {
				z[i] = (z[i] - 3) / 0.5
			}
			var counts, expected []float64
			for edge := -4.5; edge <= 4.5; edge += 0.25 {
				counts, expected = append(counts, 0), append(expected, 0)
			}
			for i := range counts { // the first and the last are the tails
				from, to := -4.5+0.25*float64(i-1), -4.5+0.25*float64(i)
				below := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
				switch i {
				case 0:
					expected[i] = n * below(to)
				case len(counts) - 1:
					expected[i] = n * below(-from)
				default:
					expected[i] = n * (below(to) - below(from))
				}
			}
			for _, v := range z {
				counts[min(max(int(math.Floor((v+4.5)/0.25))+1, 0), len(counts)-1)]++
			}
			chiSquared(t, "normal", counts, expected)
			within(t, "mean", stat.Mean(z, nil), 0, 5/math.Sqrt(n))
			within(t, "variance", stat.Variance(z, nil), 1, 5*math.Sqrt(2./n))
			within(t, "correlation", stat.Correlation(drawn[0], drawn[1], nil), 0, 5/math.Sqrt(n))
			within(t, "correlation of neighbours", stat.Correlation(z[1:], z[:n-1], nil), 0, 5/math.Sqrt(n))
			if most := slices.Max(z); !(most > 3.9 && most < 7) {
				t.Errorf("the greatest of %d is %v", n, most)
			}
		}
	})
}

// Numbers of successes have the distribution, also where none or all trials succeed.
func TestBinomial(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const n = 50_000
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, c := range []struct {
				trials int
				p      float64
			}{{1, 0.3}, {10, 0.5}, {23, 0.1}, {5, 0}, {5, 1}, {1500, 0.5}} {
				n := n
				if c.trials > 1000 {
					n = 200
				}
				x := randomRuns(t, on, 1, func(g *G.ExprGraph) *G.Node { return G.BinomialRandomNode(g, dt, float64(c.trials)+0.5, c.p, n/50, 50) })[0]
				mean := float64(c.trials) * c.p
				within(t, fmt.Sprintf("mean of %d trials of %v", c.trials, c.p), stat.Mean(x, nil), mean, 5*math.Sqrt(mean*(1-c.p)/float64(n)))
				if c.p == 0 || c.p == 1 || c.trials > 1000 {
					continue
				}
				counts, expected := make([]float64, c.trials+1), make([]float64, c.trials+1)
				for _, v := range x {
					counts[int(v)]++
				}
				for k := range expected {
					expected[k] = float64(n) * probability(c.trials, k, c.p)
				}
				for last := len(expected) - 1; expected[last] < 5; last-- { // the tail is one bin
					expected[last-1] += expected[last]
					counts[last-1] += counts[last]
					counts, expected = counts[:last], expected[:last]
				}
				chiSquared(t, fmt.Sprintf("%d trials of %v", c.trials, c.p), counts, expected)
			}
		}
	})
}

// probability is that of k successes in n trials.
func probability(n, k int, p float64) float64 {
	ways := 1.
	for i := range k {
		ways *= float64(n-i) / float64(i+1)
	}
	return ways * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
}

// Random scalars are numbers of their own in every run, and parameters that Gorgonia does
// not take are its error.
func TestRandomScalars(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for name, node := range map[string]func(*G.ExprGraph, tensor.Dtype, float64, float64, ...int) *G.Node{
			"uniform": G.UniformRandomNode, "gaussian": G.GaussianRandomNode, "binomial": G.BinomialRandomNode,
		} {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				a, b := 1., 2.
				if name == "binomial" {
					a, b = 1000, 0.5
				}
				g := G.NewGraph()
				n := node(g, dt, a, b)
				vm := machine(t, g, on, Strict(), Seed(8))
				seen := map[float64]bool{}
				for range 4 {
					testutil.Do(t, vm.RunAll())
					seen[floats(t, n.Value())[0]] = true
				}
				if !n.Value().Shape().IsScalar() || len(seen) < 3 {
					t.Errorf("%s of %v: got %v in four runs, the last a %v", name, dt, seen, n.Value().Shape())
				}
			}
		}
		for _, bad := range []func(g *G.ExprGraph){
			func(g *G.ExprGraph) { G.UniformRandomNode(g, tensor.Float64, 2, 1, 3) },
			func(g *G.ExprGraph) { G.BinomialRandomNode(g, tensor.Float64, 0, 0.5, 3) },
			func(g *G.ExprGraph) { G.BinomialRandomNode(g, tensor.Float32, 7, 1.5, 3) },
		} {
			g := G.NewGraph()
			bad(g)
			if err := machine(t, g, on).RunAll(); err == nil {
				t.Error("parameters that Gorgonia does not take give no error")
			}
		}
	})
}
