package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:    "Iterate",
	Formula: "steps times: P = w1 X, X = w2 P",
	Doc:     "A vector through steps transformations by two matrices, with a barrier of the whole grid between half steps.",
	// In float32 the result is rounded once. In float64 a half step adds up to 1031
	// products, as the tolerance of the random numbers allows for.
	Tolerance: 24,
	Cases:     iterateCases(),
	Bad: []Bad{
		badIterate("no steps", "got 0 steps, want 1 to 65536", 0, 0, tensor.Shape{3, 3}, tensor.Shape{3, 3}, tensor.Shape{3}),
		badIterate("too many steps", "got 1048576 steps, want 1 to 65536", 0, 1<<20, tensor.Shape{3, 3}, tensor.Shape{3, 3}, tensor.Shape{3}),
		badIterate("w1 of another size", "got w1 of shape (3, 4), want (3, 3)", 0, 2, tensor.Shape{3, 4}, tensor.Shape{3, 3}, tensor.Shape{3}),
		badIterate("w2 of another size", "got w2 of shape (4, 4), want (3, 3)", 0, 2, tensor.Shape{3, 3}, tensor.Shape{4, 4}, tensor.Shape{3}),
		badIterate("x is a matrix", "got x of shape (3, 3), want a vector", 0, 2, tensor.Shape{3, 3}, tensor.Shape{3, 3}, tensor.Shape{3, 3}),
		badIterate("scalars", "got x of shape (), want a vector", 0, 2, tensor.Shape{}, tensor.Shape{}, tensor.Shape{}),
		badIterate("version below 0", "got version -1, want 0 to 8", -1, 2, tensor.Shape{3, 3}, tensor.Shape{3, 3}, tensor.Shape{3}),
		badIterate("version too large", "got version 99, want 0 to 8", 99, 2, tensor.Shape{3, 3}, tensor.Shape{3, 3}, tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		return iterateCase(r.IntN(len(versions.Docs("Iterate"))+1), []int{1, 2, 3, 31, 32, 33, 64, 100, 129}[r.IntN(9)], 1+r.IntN(3))
	},
	Wide: func(s *Sizes) Case {
		n := int(math.Sqrt(float64(s.Elements(2))))
		// A step of random numbers in [-1, 1) makes values n/3 times as large: they are to
		// stay within float32.
		steps := s.LogInt(1, min(100, int(100/math.Log2(max(2, float64(n)/3)))))
		return iterateCase(0, n, steps)
	},
	Peers: `
def peers(c, d):
    w, n, steps = c["shapes"][0], c["shapes"][2][0], c["steps"]

    def f(w1, w2, x, p, y):
        y.copy_(x)
        for _ in range(steps):
            torch.mv(w1, y, out=p)
            torch.mv(w2, p, out=y)

    make = lambda: (drawn(d, w), drawn(d, w), drawn(d, [n]), empty(d, [n]), empty(d, [n]))
    yield f"{TORCH} mv, {2 * steps} calls", make, f
    yield f"{TORCH} mv, {2 * steps} calls in a CUDA graph", make, graphed(f)
`,
})

func badIterate(name, want string, v, steps int, shapes ...tensor.Shape) Bad {
	return bad(name, func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		return versions.Version(v).Iterate(in[0], in[1], in[2], steps)
	}, want, shapes...)
}

func iterateCases() []Case {
	cases := []Case{
		iterateCase(0, 1, 1), iterateCase(0, 2, 3), iterateCase(0, 7, 4), iterateCase(0, 13, 2), iterateCase(0, 128, 3), iterateCase(0, 130, 2),
		iterateCase(0, 257, 2), iterateCase(0, 258, 1), iterateCase(0, 260, 1), iterateCase(0, 513, 2), iterateCase(0, 1024, 2), iterateCase(0, 1031, 2), iterateCase(0, 2051, 1),
	}
	for v := 1; v <= len(versions.Docs("Iterate")); v++ {
		// Of 64 values: small enough for checkers that slow kernels down, and already
		// eight blocks of the versions that use shared memory.
		cases = append(cases, iterateCase(v, 5, 3), iterateCase(v, 64, 2), iterateCase(v, 128, 4), iterateCase(v, 300, 2))
	}
	return append(cases,
		large(iterateCase(0, 1<<14+1<<13, 1), kernels.Float32),
		timed("128, 20 steps", iterateCase(0, 128, 20)),
		timed("1024, 10 steps", iterateCase(0, 1024, 10)),
		timed("4096, 10 steps", iterateCase(0, 4096, 10)))
}

func iterateCase(v int, n, steps int) Case {
	half := func(w, in []float64, abs bool) []float64 {
		out := make([]float64, n)
		for j := range out {
			for k := range in {
				if t := w[j*n+k] * in[k]; abs {
					out[j] += math.Abs(t)
				} else {
					out[j] += t
				}
			}
		}
		return out
	}
	c := Case{
		Name:       fmt.Sprintf("%d, %d steps", n, steps),
		Shapes:     []tensor.Shape{{n, n}, {n, n}, {n}},
		Parameters: Parameters{Steps: steps},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return versions.Version(v).Iterate(in[0], in[1], in[2], steps)
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out, magnitude = in[2], in[2]
			for range steps {
				out = half(in[1], half(in[0], out, false), false)
				magnitude = half(in[1], half(in[0], magnitude, true), true)
			}
			return out, magnitude
		},
		// Each step reads both matrices. The level-2 cache holds at most its size of those that the step before read.
		Least: func(dt kernels.Dtype, dev kernels.Device) int64 {
			matrices, vectors := 2*int64(n)*int64(n)*dt.Size(), 2*int64(n)*dt.Size()
			return matrices + int64(steps-1)*max(matrices-dev.L2, 0) + vectors
		},
	}
	if v > 0 {
		c = versioned(v, c, c.Build)
	}
	return c
}
