//go:build unix

package exectest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// growing is a graph of square matrices that grows.
type growing struct {
	g       *G.ExprGraph
	r       *rand.Rand
	size    int // rows and columns
	learned G.Nodes
	inputs  int
}

func (b *growing) input() *G.Node {
	b.inputs++
	return G.NewMatrix(b.g, tensor.Float32, G.WithShape(b.size, b.size), G.WithName(fmt.Sprint("x", b.inputs)))
}

func (b *growing) weight() *G.Node {
	w := b.input()
	b.learned = append(b.learned, w)
	return w
}

func (b *growing) bias() *G.Node {
	b.inputs++
	v := G.NewVector(b.g, tensor.Float32, G.WithShape(b.size), G.WithName(fmt.Sprint("b", b.inputs)))
	b.learned = append(b.learned, v)
	return v
}

func (b *growing) linear(x, w, bias *G.Node) *G.Node {
	return G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w)), bias, nil, []byte{0}))
}

// grown make graphs of about n nodes, with the gradients of the result w.r.t. all weights, if there are any.
var grown = map[string]func(b *growing, n int) *G.Node{
	"chain": func(b *growing, n int) *G.Node {
		x, y := b.input(), b.input()
		for range n / 3 {
			x = G.Must(G.Sigmoid(G.Must(G.Add(G.Must(G.Tanh(x)), y))))
		}
		return x
	},
	"LSTM": func(b *growing, n int) *G.Node {
		h, c := b.input(), b.input()
		var w, u, bias [4]*G.Node
		for i := range w {
			w[i], u[i], bias[i] = b.weight(), b.weight(), b.bias()
		}
		var cost *G.Node
		for range n / 110 {
			x := b.input()
			var gates [4]*G.Node
			for i, f := range []func(*G.Node) (*G.Node, error){G.Sigmoid, G.Sigmoid, G.Sigmoid, G.Tanh} {
				gates[i] = G.Must(f(G.Must(G.Add(b.linear(x, w[i], bias[i]), G.Must(G.Mul(h, u[i]))))))
			}
			c = G.Must(G.Add(G.Must(G.HadamardProd(gates[0], c)), G.Must(G.HadamardProd(gates[1], gates[3]))))
			h = G.Must(G.HadamardProd(gates[2], G.Must(G.Tanh(c))))
			loss := G.Must(G.Mean(G.Must(G.Square(h))))
			if cost != nil {
				loss = G.Must(G.Add(cost, loss))
			}
			cost = loss
		}
		return cost
	},
	"perceptron": func(b *growing, n int) *G.Node {
		x := b.input()
		for range n / 15 {
			x = G.Must(G.Tanh(b.linear(x, b.weight(), b.bias())))
		}
		return x
	},
	"transformer": func(b *growing, n int) *G.Node {
		x := b.input()
		for range n / 60 {
			weights := G.Must(G.SoftMax(G.Must(G.Mul(G.Must(G.Mul(x, b.weight())), G.Must(G.Transpose(G.Must(G.Mul(x, b.weight()))))))))
			x = G.Must(G.Add(x, G.Must(G.Mul(weights, G.Must(G.Mul(x, b.weight()))))))
			normal := G.Must(ops.LayerNorm(x, b.bias(), b.bias(), 1e-5))
			x = G.Must(G.Add(x, G.Must(G.Mul(G.Must(G.Rectify(G.Must(G.Mul(normal, b.weight())))), b.weight()))))
		}
		return x
	},
	"residual layers": func(b *growing, n int) *G.Node {
		x := b.input()
		for range n / 30 {
			x = G.Must(G.Add(x, G.Must(G.Mul(G.Must(ops.GELU(G.Must(G.Mul(x, b.weight())))), b.weight()))))
		}
		return x
	},
	"losses of samples": func(b *growing, n int) *G.Node {
		w, bias := b.weight(), b.bias()
		var cost *G.Node
		for range n / 20 {
			loss := G.Must(G.Sum(G.Must(G.Square(G.Must(G.Sub(G.Must(G.Sigmoid(b.linear(b.input(), w, bias))), b.input()))))))
			if cost != nil {
				loss = G.Must(G.Add(cost, loss))
			}
			cost = loss
		}
		return cost
	},
	"sum of sums": func(b *growing, n int) *G.Node {
		var total *G.Node
		for range n / 3 {
			sum := G.Must(G.Sum(b.input(), 0))
			if total != nil {
				sum = G.Must(G.Add(total, sum))
			}
			total = sum
		}
		return total
	},
	"value with many readers": func(b *growing, n int) *G.Node {
		x := G.Must(G.Tanh(b.input()))
		for range n / 2 {
			G.Must(G.Mul(x, b.input()))
		}
		return x
	},
	"value with many readers in a chain": func(b *growing, n int) *G.Node {
		x := G.Must(G.Tanh(b.weight()))
		y := x
		for range n / 5 {
			y = G.Must(G.Add(y, G.Must(G.HadamardProd(x, b.input()))))
		}
		return y
	},
	"tree": func(b *growing, n int) *G.Node {
		var list G.Nodes
		for range n / 2 {
			list = append(list, b.input())
		}
		for len(list) > 1 {
			list = append(list[2:], G.Must(G.Add(list[0], list[1])))
		}
		return list[0]
	},
	"vectors and weights": func(b *growing, n int) *G.Node {
		h := G.NewMatrix(b.g, tensor.Float32, G.WithShape(1, b.size), G.WithName("h"))
		for range n / 3 {
			h = G.Must(G.Tanh(G.Must(ops.Linear(h, b.input(), nil))))
		}
		return h
	},
	"random":                func(b *growing, n int) *G.Node { return b.random(n/7, n) },
	"random, of near nodes": func(b *growing, n int) *G.Node { return b.random(n/7, 20) },
}

// random draws a graph whose nodes read some of the last reach nodes.
func (b *growing) random(n, reach int) *G.Node {
	pool, unread := G.Nodes{b.weight(), b.weight(), b.input()}, map[*G.Node]bool{}
	pick := func() *G.Node {
		x := pool[len(pool)-1-b.r.IntN(min(len(pool), reach))]
		delete(unread, x)
		return x
	}
	for range n {
		x := pick()
		switch b.r.IntN(7) {
		case 0:
			x = G.Must(G.Tanh(x))
		case 1:
			x = G.Must(G.Sigmoid(x))
		case 2:
			x = G.Must(G.Transpose(x))
		case 3:
			x = G.Must(G.Add(x, pick()))
		case 4:
			x = G.Must(G.HadamardProd(x, pick()))
		case 5:
			x = G.Must(G.Mul(x, pick()))
		case 6:
			x = G.Must(G.BroadcastAdd(x, G.Must(G.Sum(pick(), 1)), nil, []byte{1}))
		}
		pool, unread[x] = append(pool, x), true
	}
	total := pick()
	for _, x := range pool {
		if unread[x] {
			total = G.Must(G.Add(total, x))
		}
	}
	return total
}

// A device's program of four times as many nodes takes less than ten times as long to make, and so does each pass. A pass that compares all pairs takes sixteen times as long.
func TestGrowth(t *testing.T) {
	const n, times, most, tries = 2500, 4, 10, 4
	const noise = 50 * time.Millisecond // and the searches for offsets of few buffers
	testutil.Do(t, internal.Learnt())
	for _, name := range slices.Sorted(maps.Keys(grown)) {
		few, many := map[string]time.Duration{}, map[string]time.Duration{}
		var slow []string
		for range tries { // the least of several, as long as it is too much
			few, many = least(few, growth(t, name, n)), least(many, growth(t, name, n*times))
			slow = slow[:0]
			for what, took := range many {
				if took > most*few[what]+noise {
					slow = append(slow, what)
				}
			}
			if len(slow) == 0 {
				break
			}
		}
		t.Logf("%s: %v; %d times as many nodes: %v", name, few["all"], times, many["all"])
		for _, what := range slow {
			t.Errorf("%s: %s took %v, and %v with %d times as many nodes; want less than %d times as long", name, what, few[what], many[what], times, most)
		}
	}
}

// growth returns the times of the passes, of the steps before and after them, and of all.
func growth(t *testing.T, name string, n int) map[string]time.Duration {
	b := &growing{g: G.NewGraph(), r: rand.New(rand.NewPCG(1, 2)), size: 8}
	dev := H200
	if name == "residual layers" { // which compute values again for the lack of memory
		b.size, dev.Memory = 1024, int64(n)<<20
	}
	result, want := grown[name](b, n), &lower.Wanted{}
	if len(b.learned) > 0 {
		if !result.IsScalar() {
			result = G.Must(G.Mean(result))
		}
		testutil.Get[G.Nodes](t)(G.Grad(result, b.learned...))
		solver, _, err := internal.ReadSolver(G.NewAdamSolver())
		testutil.Do(t, err)
		want.Train = &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: b.learned}}}
	}
	if name == "vectors and weights" {
		want.Resident = G.Nodes(b.g.Inputs())[1:]
	}
	runtime.GC()
	took, start := map[string]time.Duration{}, testutil.CPUTime(t)
	last := start
	lap := func(what string, _ *program.Program) error {
		now := testutil.CPUTime(t)
		took[what], last = now-last, now
		return nil
	}
	l := testutil.Get[*lower.Graph](t)(lower.New(b.g, want))
	testutil.Do(t, passes.Run(l.Program, passes.Target{Device: dev}, lap))
	_, err := exec.New(l.Program, &Recorder{For: dev}, false)
	testutil.Do(t, err)
	lap("exec", nil)
	took["all"] = last - start
	return took
}

// least returns the lesser times of two runs.
func least(a, b map[string]time.Duration) map[string]time.Duration {
	for what, took := range a {
		b[what] = min(b[what], took)
	}
	return b
}
