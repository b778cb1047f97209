package cudaops

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sliced is a slice of a tensor, or of another slice of it.
type sliced struct {
	node  *G.Node
	of    int   // index of the slice that it slices, -1 for the tensor
	shape []int // of the sliced value
	axis  int
	count int
}

// drawSlice returns a random slice of an axis of that extent.
func drawSlice(r *rand.Rand, extent, count int) tensor.Slice {
	if count == 1 {
		return G.S(r.IntN(extent))
	}
	step := 1 + r.IntN(extent/count)
	start := r.IntN(extent - step*count + 1)
	return G.S(start, start+step*count, step)
}

// drawSliced adds to a list a slice of the tensor or of a slice in the list.
func drawSliced(t *testing.T, r *rand.Rand, list []sliced, x *G.Node) []sliced {
	s := sliced{of: r.IntN(len(list)+1) - 1}
	of := x
	if s.of >= 0 {
		of = list[s.of].node
	}
	s.shape = of.Shape().Clone()
	if len(s.shape) == 0 {
		return list
	}
	s.axis = r.IntN(len(s.shape))
	s.count = 1 + r.IntN(s.shape[s.axis])
	at := make([]tensor.Slice, s.axis+1)
	at[s.axis] = drawSlice(r, s.shape[s.axis], s.count)
	s.node = testutil.Get[*G.Node](t)(G.Slice(of, at...))
	if slices.ContainsFunc(list, func(o sliced) bool { return o.node == s.node }) {
		return list
	}
	return append(list, s)
}

// elements returns the tensor's elements in a slice, given the tensor's elements in the sliced value.
func (s sliced) elements(of []int) (list []int) {
	at := s.node.Op().(interface{ IsSlice() tensor.Slice }).IsSlice()
	inner := 1
	for _, d := range s.shape[s.axis+1:] {
		inner *= d
	}
	for outer := 0; outer < len(of); outer += s.shape[s.axis] * inner {
		for k := range s.count {
			from := outer + (at.Start()+k*max(at.Step(), 1))*inner
			list = append(list, of[from:from+inner]...)
		}
	}
	return list
}

// Slices that UnsafeLet sets before each run have their elements, and their derivatives those of the rest, bit for bit. A slice compiles the graph
// once, when it is first set.
func TestMovingSlices(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const trials, runs = 30, 6
		for trial := range trials {
			r := rand.New(rand.NewPCG(uint64(trial), 29))
			dt := []tensor.Dtype{tensor.Float32, tensor.Float64}[trial%2]
			shape := make([]int, 1+r.IntN(3))
			for a := range shape {
				shape[a] = 2 + r.IntN(9)
			}
			g := G.NewGraph()
			x := G.NewTensor(g, dt, len(shape), G.WithName("x"), G.WithShape(shape...), G.WithInit(G.RangedFrom(-7)))
			var list []sliced
			for len(list) < 1+trial%4 {
				list = drawSliced(t, r, list, x)
			}
			cost, kept := G.NewConstant(0.0), G.Nodes{}
			if dt == tensor.Float32 {
				cost = G.NewConstant(float32(0))
			}
			for _, s := range list {
				square := testutil.Get[*G.Node](t)(G.Square(s.node))
				if !square.IsScalar() {
					square = testutil.Get[*G.Node](t)(G.Sum(square))
				}
				cost = testutil.Get[*G.Node](t)(G.Add(cost, square))
				kept = append(kept, s.node)
			}
			testutil.Get[G.Nodes](t)(G.Grad(cost, x))
			vm := machine(t, g, on, Keep(kept...))
			testutil.Do(t, vm.RunAll())
			all := make([]int, x.Shape().TotalSize())
			for i := range all {
				all[i] = i
			}
			for run := range runs {
				was, moving := vm.exec, len(vm.graph.Moving())
				for _, s := range list {
					testutil.Do(t, G.UnsafeLet(s.node, drawSlice(r, s.shape[s.axis], s.count)))
				}
				more := len(vm.graph.Moving()) > moving
				if err := vm.RunAll(); err != nil {
					t.Fatalf("trial %d: %v", trial, err)
				}
				gradient, elements := make([]float64, len(all)), make([][]int, len(list))
				for i, s := range list {
					of := all
					if s.of >= 0 {
						of = elements[s.of]
					}
					elements[i] = s.elements(of)
					want := make([]float64, len(elements[i]))
					for k, at := range elements[i] {
						want[k] = float64(at - 7)
						gradient[at] += 2 * want[k]
					}
					wantFloats(t, fmt.Sprintf("trial %d, run %d: %v", trial, run, s.node), s.node.Value(), want...)
				}
				wantFloats(t, fmt.Sprintf("trial %d, run %d: the gradient", trial, run), testutil.Get[G.Value](t)(x.Grad()), gradient...)
				if compiled := vm.exec != was; compiled != more {
					t.Errorf("trial %d, run %d: the graph was compiled again %v, want %v", trial, run, compiled, more)
				}
			}
		}
	})
}

// A slice that does not fit is an error that names it. Nothing has changed then.
func TestSlicesThatDoNotFit(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(5, 2), G.WithInit(G.RangedFrom(0)))
		part := testutil.Get[*G.Node](t)(G.Slice(x, G.S(0, 2)))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		for range 2 { // of a view, then of a moving slice
			for _, c := range []struct {
				slice tensor.Slice
				want  string
			}{
				{G.S(4, 6), "got the slice 4:6 of an axis of 5 elements"},
				{G.S(5, 7), "got the slice 5:7 of an axis of 5 elements"},
				{G.S(-1, 1), "got the slice -1:1 of an axis of 5 elements"},
				{G.S(1, 4), "got the slice 1:4:1 of 3 elements, want 2"},
				{G.S(3), "got the slice 3:4:1 of 1 elements, want 2"},
				{G.S(2, 2), "got the slice 0:5:1 of 5 elements, want 2"},
				{struct{ tensor.Slice }{}, "a slice of gorgonia.UnsafeLet panicked"},
			} {
				was, value := vm.exec, part.Value()
				testutil.Do(t, G.UnsafeLet(part, c.slice))
				if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got the error %v, want one with %q", err, c.want)
				}
				if vm.exec != was || part.Value() != value {
					t.Errorf("%s: something has changed", c.want)
				}
			}
			testutil.Do(t, G.UnsafeLet(part, G.S(1, 5, 2)))
			testutil.Do(t, vm.RunAll())
			wantFloats(t, "the slice", part.Value(), 2, 3, 6, 7)
		}
	})
}

// On a GPU a slice elsewhere takes at most 0.1 ms more than the same slice again.
func TestTimeOfMovingSlices(t *testing.T) {
	_, err := Devices()
	testutil.SkipUnless(t, "GPU", err)
	node, g := testutil.Get[*G.Node](t), G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(8192, 784), G.WithInit(G.Gaussian(0, 1)))
	w := G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(784, 512), G.WithInit(G.Gaussian(0, 0.1)))
	part := node(G.Slice(x, G.S(0, 128)))
	cost := node(G.Mean(node(G.Square(node(G.Mul(part, w))))))
	testutil.Get[G.Nodes](t)(G.Grad(cost, w))
	vm := machine(t, g, OnDevice(0), Resident(x), Train(G.NewVanillaSolver(), w))
	run := func(start int) time.Duration {
		testutil.Do(t, G.UnsafeLet(part, G.S(start, start+128)))
		begin := time.Now()
		testutil.Do(t, vm.RunAll())
		return time.Since(begin)
	}
	run(0)
	run(1)
	was := vm.exec
	var same, elsewhere []time.Duration
	for i := range 200 {
		elsewhere = append(elsewhere, run(37*i%8000))
		same = append(same, run(37*i%8000))
	}
	if vm.exec != was {
		t.Error("the graph was compiled again")
	}
	slices.Sort(same)
	slices.Sort(elsewhere)
	t.Logf("the same slice again: %v; elsewhere: %v (medians)", same[100], elsewhere[100])
	if more := elsewhere[100] - same[100]; more > 100*time.Microsecond {
		t.Errorf("a slice elsewhere takes %v more, want at most 100us", more)
	}
}
