package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// side is an axis of images and the windows along it.
type side struct{ n, size, stride, dilation, before, after int }

// out is how many windows fit.
func (s side) out() (n int) {
	for at := -s.before; at+(s.size-1)*s.dilation < s.n+s.after; at += s.stride {
		n++
	}
	return n
}

// frame is the windows of images of some channels.
type frame struct {
	images, channels int
	v, h             side
}

func (f frame) shape() []int  { return []int{f.images, f.channels, f.v.n, f.h.n} }
func (f frame) pooled() []int { return []int{f.images, f.channels, f.v.out(), f.h.out()} }

// window returns the elements of a window, in order, and whether each is inside.
func (f frame) window(x array, image, channel, row, column int) (elements []float64, inside []bool) {
	for i := range f.v.size {
		for j := range f.h.size {
			y, at := row*f.v.stride-f.v.before+i*f.v.dilation, column*f.h.stride-f.h.before+j*f.h.dilation
			if y < 0 || y >= f.v.n || at < 0 || at >= f.h.n {
				elements, inside = append(elements, 0), append(inside, false)
				continue
			}
			elements, inside = append(elements, x.v[((image*f.channels+channel)*f.v.n+y)*f.h.n+at]), append(inside, true)
		}
	}
	return elements, inside
}

// pool returns a function of every window's elements that are inside.
func (f frame) pool(x array, of func([]float64) float64) array {
	return generate(f.pooled(), func(i []int) float64 {
		elements, inside := f.window(x, i[0], i[1], i[2], i[3])
		var in []float64
		for k, e := range elements {
			if inside[k] {
				in = append(in, e)
			}
		}
		return of(in)
	})
}

// columns is im2col.
func (f frame) columns(x array) array {
	size := f.v.size * f.h.size
	return generate([]int{f.images, f.v.out(), f.h.out(), f.channels * size}, func(i []int) float64 {
		elements, _ := f.window(x, i[0], i[3]/size, i[1], i[2])
		return elements[i[3]%size]
	})
}

// convolve is Conv2d with filters of shape (filters, channels, size, size).
func (f frame) convolve(x, filter array) array {
	size := f.v.size * f.h.size
	return generate([]int{f.images, filter.shape[0], f.v.out(), f.h.out()}, func(i []int) (sum float64) {
		for c := range f.channels {
			elements, _ := f.window(x, i[0], c, i[2], i[3])
			for k, e := range elements {
				sum += e * filter.v[(i[1]*f.channels+c)*size+k]
			}
		}
		return sum
	})
}

// greatest returns the maximum as MaxPool2D computes it.
func greatest(x []float64) float64 {
	most := -math.MaxFloat64
	for _, e := range x {
		most = max(most, e)
	}
	return most
}

func shape2(v, h int) tensor.Shape { return tensor.Shape{v, h} }

// convolutions are compositions of im2col on a frame.
func convolutions(f frame, filters int) []lowered {
	pad, stride, dilation := []int{f.v.before, f.h.before}, []int{f.v.stride, f.h.stride}, []int{f.v.dilation, f.h.dilation}
	kernel := shape2(f.v.size, f.h.size)
	return []lowered{
		{
			name: fmt.Sprintf("im2col %+v", f), shapes: [][]int{f.shape()},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Im2Col(x[0], kernel, pad, stride, dilation) },
			ref:   func(x ...array) array { return f.columns(x[0]) },
		},
		{
			name: fmt.Sprintf("conv2d %+v", f), shapes: [][]int{f.shape(), {filters, f.channels, f.v.size, f.h.size}},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Conv2d(x[0], x[1], kernel, pad, stride, dilation) },
			ref:   func(x ...array) array { return f.convolve(x[0], x[1]) },
		},
		{
			name: fmt.Sprintf("conv2d, filters first %+v", f), shapes: [][]int{f.shape(), {filters, f.channels, f.v.size, f.h.size}},
			build: func(x ...*G.Node) (*G.Node, error) {
				y, err := G.Conv2d(x[0], x[1], kernel, pad, stride, dilation)
				if err != nil {
					return nil, err
				}
				return G.Transpose(y, 1, 0, 2, 3)
			},
			ref: func(x ...array) array {
				y := f.convolve(x[0], x[1])
				return generate([]int{filters, f.images, f.v.out(), f.h.out()}, func(i []int) float64 {
					return y.v[((i[1]*filters+i[0])*f.v.out()+i[2])*f.h.out()+i[3]]
				})
			},
		},
	}
}

// pools are pooling and upsampling on a frame, whose windows have no dilation.
func pools(f frame) []lowered {
	pad := []int{f.v.before, f.h.before}
	if f.v.before != f.v.after || f.h.before != f.h.after {
		pad = []int{f.v.after, f.v.before, f.h.after, f.h.before} // as Gorgonia takes them
	}
	kernel, stride := shape2(f.v.size, f.h.size), []int{f.v.stride, f.h.stride}
	area := float64(f.v.size * f.h.size)
	return []lowered{
		{
			name: fmt.Sprintf("max-pool %+v", f), shapes: [][]int{f.shape()},
			build: func(x ...*G.Node) (*G.Node, error) { return G.MaxPool2D(x[0], kernel, pad, stride) },
			ref:   func(x ...array) array { return f.pool(x[0], greatest) },
		},
		{
			name: fmt.Sprintf("average-pool %+v", f), shapes: [][]int{f.shape()}, noTape: "it divides by the columns of the image",
			build: func(x ...*G.Node) (*G.Node, error) { return G.AveragePool2D(x[0], kernel, pad, stride) },
			ref: func(x ...array) array {
				return f.pool(x[0], func(in []float64) (sum float64) {
					for _, e := range in {
						sum += e
					}
					return sum / area
				})
			},
		},
		{
			name: fmt.Sprintf("upsample %+v", f), shapes: [][]int{f.shape()},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Upsample2D(x[0], f.v.size) },
			ref: func(x ...array) array {
				shape := []int{f.images, f.channels, f.v.n * f.v.size, f.h.n * f.v.size}
				return generate(shape, func(i []int) float64 { return x[0].v[((i[0]*f.channels+i[1])*f.v.n+i[2]/f.v.size)*f.h.n+i[3]/f.v.size] })
			},
		},
	}
}

// drawFrame draws windows that fit and, without dilation, have something inside.
// Symmetric ones reach outside as far on either side.
func drawFrame(r *rand.Rand, symmetric bool, dilations int) frame {
	draw := func() (s side) {
		for s.n == 0 || s.out() == 0 || dilations == 1 && max(s.before, s.after) >= s.size {
			s = side{1 + r.IntN(7), 1 + r.IntN(4), 1 + r.IntN(3), 1 + r.IntN(dilations), r.IntN(3), r.IntN(3)}
			if symmetric {
				s.after = s.before
			}
		}
		return s
	}
	return frame{1 + r.IntN(2), 1 + r.IntN(3), draw(), draw()}
}

// windowCases are randomly drawn windows, and some common ones.
func windowCases(seed uint64) (list []lowered) {
	r := rand.New(rand.NewPCG(seed, 21))
	three, two, pixel := side{5, 3, 1, 1, 1, 1}, side{6, 2, 2, 1, 0, 0}, side{1, 1, 1, 1, 0, 0}
	list = slices.Concat(convolutions(frame{2, 3, three, three}, 4), convolutions(frame{1, 2, pixel, pixel}, 2), convolutions(frame{3, 2, pixel, pixel}, 2), pools(frame{2, 2, two, two}), pools(frame{1, 2, three, three}))
	for range 4 {
		list = slices.Concat(list, convolutions(drawFrame(r, true, 3), 1+r.IntN(4)), pools(drawFrame(r, r.IntN(2) == 0, 1)))
	}
	f := drawFrame(r, true, 3)
	f.v = side{n: f.v.n, size: 1, stride: 1, dilation: 1}
	one := f
	one.h = drawFrame(r, true, 1).h
	list = append(list, lowered{
		name: fmt.Sprintf("conv1d %+v", f), shapes: [][]int{f.shape(), {2, f.channels, 1, f.h.size}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.Conv1d(x[0], x[1], f.h.size, f.h.before, f.h.stride, f.h.dilation)
		},
		ref: func(x ...array) array { return f.convolve(x[0], x[1]) },
	})
	return append(list, lowered{
		name: fmt.Sprintf("max-pool of rows %+v", one), shapes: [][]int{one.shape()},
		build: func(x ...*G.Node) (*G.Node, error) { return G.MaxPool1D(x[0], one.h.size, one.h.before, one.h.stride) },
		ref:   func(x ...array) array { return one.pool(x[0], greatest) },
	})
}

func TestLoweredWindows(t *testing.T) {
	seed := testutil.Seed(t)
	onBackends(t, func(t *testing.T, on Option) {
		for _, c := range windowCases(seed) {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				t.Run(fmt.Sprintf("%s/%v", c.name, dt), func(t *testing.T) { c.check(t, dt, on) })
			}
		}
	})
}

// The first of equal maxima gets the gradient; NaN is never the maximum. The maximum of an empty window, or of only NaN and -Inf,
// is the lowest finite number, and no element gets its gradient.
func TestMaxPoolTies(t *testing.T) {
	seed := testutil.Seed(t)
	onBackends(t, func(t *testing.T, on Option) {
		r := rand.New(rand.NewPCG(seed, 22))
		for range 20 {
			f := drawFrame(r, true, 1)
			f.h.before += r.IntN(3) // windows of nothing, perhaps
			f.h.after = f.h.before
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				least := -math.MaxFloat64
				if dt == tensor.Float32 {
					least = -math.MaxFloat32
				}
				special := []float64{-1, 0, math.Copysign(0, -1), 1, 1, 2, math.Inf(1), math.Inf(-1), math.NaN(), math.NaN(), least}
				x := generate(f.shape(), func([]int) float64 { return special[r.IntN(len(special))] })
				weights := generate(f.pooled(), func([]int) float64 { return float64(r.IntN(100)) })
				maxPoolTies(t, f, dt, on, x, weights, least)
			}
		}
	})
}

func maxPoolTies(t *testing.T, f frame, dt tensor.Dtype, on Option, x, weights array, least float64) {
	t.Helper()
	node := func(g *G.ExprGraph, name string, a array) *G.Node {
		v := tensor.New(tensor.Of(dt), tensor.WithShape(a.shape...))
		for i, e := range a.v {
			setNumber(v, i, e)
		}
		return G.NewTensor(g, dt, len(a.shape), G.WithName(name), G.WithShape(a.shape...), G.WithValue(v))
	}
	g := G.NewGraph()
	in := node(g, "x", x)
	pooled := testutil.Get[*G.Node](t)(G.MaxPool2D(in, shape2(f.v.size, f.h.size), []int{f.v.before, f.h.before}, []int{f.v.stride, f.h.stride}))
	var read G.Value
	G.Read(pooled, &read)
	diff := G.Must(G.ApplyOp(maxPoolDiff(t, pooled), in, pooled, node(g, "weights", weights)))
	testutil.Do(t, machine(t, g, on).RunAll())

	want, slopes := generate(f.pooled(), func([]int) float64 { return least }), generate(f.shape(), func([]int) float64 { return 0 })
	each(f.pooled(), func(o []int) {
		k, at := ((o[0]*f.channels+o[1])*f.v.out()+o[2])*f.h.out()+o[3], -1
		for i := range f.v.size {
			for j := range f.h.size {
				y, column := o[2]*f.v.stride-f.v.before+i, o[3]*f.h.stride-f.h.before+j
				if y < 0 || y >= f.v.n || column < 0 || column >= f.h.n {
					continue
				}
				from := ((o[0]*f.channels+o[1])*f.v.n+y)*f.h.n + column
				if x.v[from] > want.v[k] {
					want.v[k], at = x.v[from], from
				}
			}
		}
		if at >= 0 {
			slopes.v[at] += weights.v[k]
		}
	})
	closeTo(t, fmt.Sprintf("max-pool %+v of %v", f, dt), read, want, 0)
	closeTo(t, fmt.Sprintf("derivative of max-pool %+v of %v", f, dt), diff.Value(), slopes, 0)
}

// maxPoolDiff returns the op that Gorgonia makes the derivative of a MaxPool2D by.
func maxPoolDiff(t *testing.T, pooled *G.Node) G.Op {
	t.Helper()
	op := pooled.Op().(G.SDOp)
	g := G.NewGraph()
	like := func(name string, n *G.Node) *G.Node {
		return G.NewTensor(g, n.Dtype(), 4, G.WithName(name), G.WithShape(n.Shape().Clone()...))
	}
	d := testutil.Get[G.Nodes](t)(op.SymDiff(G.Nodes{like("x", pooled)}, like("y", pooled), like("dy", pooled)))
	return d[0].Op()
}

// Grad panics at GlobalAveragePool2D, which has no derivative; that of Mean along the same
// axes is right.
func TestGlobalAverageGradient(t *testing.T) {
	func() {
		defer func() { recover() }()
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float64, 4, G.WithName("x"), G.WithShape(2, 3, 4, 5))
		if d, err := G.Grad(G.Must(G.Sum(G.Must(G.GlobalAveragePool2D(x)))), x); err == nil {
			t.Errorf("got the derivative %v, want a panic or an error", d)
		}
	}()
	c := lowered{
		name: "mean of planes", shapes: [][]int{{2, 3, 4, 5}}, noTape: "its sum along inner axes is wrong",
		build: func(x ...*G.Node) (*G.Node, error) { return G.Mean(x[0], 2, 3) },
		ref: func(x ...array) array {
			return x[0].sum(2, 3).apply(func(v float64) float64 { return v / 20 })
		},
	}
	onBackends(t, func(t *testing.T, on Option) { c.check(t, tensor.Float64, on) })
}

// The faults that Gorgonia makes while it builds a graph, as docs/gorgonia-ops.md lists them: no
// machine can see them.
func TestWindowQuirks(t *testing.T) {
	g := G.NewGraph()
	x := G.NewTensor(g, tensor.Float64, 4, G.WithName("x"), G.WithShape(2, 3, 8, 8))
	node := testutil.Get[*G.Node](t)
	pair := func(v int) []int { return []int{v, v} }
	if most, average := node(G.MaxPool1D(x, 2, 0, 2)), node(G.AveragePool1D(x, 2, 0, 2)); most != average {
		t.Errorf("AveragePool1D is %v, want it to be MaxPool1D, %v", average, most)
	}
	for name, pool := range map[string]func(*G.Node, tensor.Shape, []int, []int) (*G.Node, error){"max": G.MaxPool2D, "average": G.AveragePool2D} {
		a, b := node(pool(x, pair(3), []int{1, 0, 1, 0}, pair(2))), node(pool(x, pair(3), []int{1, 1, 1, 0}, pair(2)))
		if a != b {
			t.Errorf("%s-pools of two paddings are %v and %v, want one node", name, a, b)
		}
	}
	a, b := node(G.Im2Col(x, pair(3), pair(1), pair(4), pair(1))), node(G.Im2Col(x, pair(3), pair(1), pair(4), pair(2)))
	if a != b {
		t.Errorf("columns of two dilations are %v and %v, want one node", a, b)
	}
}
