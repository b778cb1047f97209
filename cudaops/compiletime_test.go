//go:build unix

package cudaops

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// growing make graphs of a number of nodes that grows with n.
var growing = map[string]func(g *G.ExprGraph, n int) []Option{
	"a chain and its gradient": func(g *G.ExprGraph, n int) []Option {
		w := matrixOf(g, "w")
		h := w
		for range n / 2 {
			h = G.Must(G.Tanh(h))
		}
		if _, err := G.Grad(G.Must(G.Mean(h)), w); err != nil {
			panic(err)
		}
		return []Option{Train(G.NewAdamSolver(), w)}
	},
	"a sum of sums": func(g *G.ExprGraph, n int) []Option {
		x := matrixOf(g, "x")
		y := x
		for i := range n / 3 {
			y = G.Must(G.Add(y, G.Must(G.Add(x, G.NewConstant(float32(i))))))
		}
		return nil
	},
	"reductions of one value": func(g *G.ExprGraph, n int) []Option {
		x := matrixOf(g, "x")
		for i := range n / 3 {
			G.Must(G.Sum(G.Must(G.Add(x, G.NewConstant(float32(i)))), 0))
		}
		return nil
	},
	"reductions of inputs": func(g *G.ExprGraph, n int) []Option {
		for i := range n / 2 {
			G.Must(G.Sum(matrixOf(g, fmt.Sprint("x", i)), 0))
		}
		return nil
	},
	"products that add one value": func(g *G.ExprGraph, n int) []Option {
		x, w := matrixOf(g, "x"), matrixOf(g, "w")
		s := G.Must(G.Tanh(x))
		for range n / 2 {
			x = G.Must(G.Add(G.Must(G.Mul(x, w)), s))
		}
		return nil
	},
	"products that add one chain": func(g *G.ExprGraph, n int) []Option {
		x, a, w := matrixOf(g, "x"), matrixOf(g, "a"), matrixOf(g, "w")
		for range n / 3 {
			a = G.Must(G.Tanh(a))
			x = G.Must(G.Add(G.Must(G.Mul(x, w)), a))
		}
		return nil
	},
	"ops on the host": func(g *G.ExprGraph, n int) []Option {
		x := matrixOf(g, "x")
		for range n {
			x = G.Must(G.ApplyOp(foreignOp{G.Must(G.Tanh(matrixOf(G.NewGraph(), "y"))).Op()}, x))
		}
		return nil
	},
}

func matrixOf(g *G.ExprGraph, name string) *G.Node {
	return G.NewMatrix(g, tensor.Float32, G.WithShape(8, 8), G.WithName(name))
}

// NewVM takes about eight times as long for eight times as many nodes, not sixty-four times.
func TestCompileTime(t *testing.T) {
	const n, times, most = 500, 8, 24
	testutil.Do(t, internal.Learnt())
	for name, build := range growing {
		t.Run(name, func(t *testing.T) {
			take := func(n int) float64 {
				g := G.NewGraph()
				options := append(build(g, n), OnHost())
				runtime.GC()
				start := testutil.CPUTime(t)
				vm := testutil.Get[*VM](t)(NewVM(g, options...))
				took := testutil.CPUTime(t) - start
				testutil.Do(t, vm.Close())
				return took.Seconds()
			}
			few, many := math.Inf(1), math.Inf(1)
			for range 4 { // the least of several, as long as it is too much
				few, many = min(few, take(n), take(n)), min(many, take(n*times))
				if many < most*few {
					break
				}
			}
			t.Logf("n = %d: %.0f ms, %d: %.0f ms", n, few*1e3, n*times, many*1e3)
			if many >= most*few {
				t.Errorf("%d times as many nodes took %.1f times as long, want less than %d", times, many/few, most)
			}
		})
	}
}
