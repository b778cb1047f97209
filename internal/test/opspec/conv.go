package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// convOf describes a convolution: the sizes of images and filters, and along both axes stride, padding before and after, dilation.
type convOf struct {
	images, channels, filters, groups         int
	in, size, stride, before, after, dilation [2]int
	plain                                     bool // no bias along one axis
}

func (v convOf) out(a int) int {
	return (v.in[a]+v.before[a]+v.after[a]-v.dilation[a]*(v.size[a]-1)-1)/v.stride[a] + 1
}

func (v convOf) options() []ops.ConvOption {
	return []ops.ConvOption{ops.Stride(v.stride[:]...), ops.Dilation(v.dilation[:]...), ops.Groups(v.groups), ops.Padding(v.before[0], v.after[0], v.before[1], v.after[1])}
}

// name prints the sizes.
func (v convOf) name() string {
	return fmt.Sprintf("%dx%dx%dx%d, %d filters %dx%d, stride %v, padding %v %v, dilation %v, groups %d", v.images, v.channels, v.in[0], v.in[1], v.filters, v.size[0], v.size[1], v.stride, v.before, v.after, v.dilation, v.groups)
}

// square is a convolution with equal axes.
func square(images, channels, side, filters, size, stride, pad, dilation, groups int) convOf {
	return convOf{images, channels, filters, groups, [2]int{side, side}, [2]int{size, size}, [2]int{stride, stride}, [2]int{pad, pad}, [2]int{pad, pad}, [2]int{dilation, dilation}, false}
}

// outputs calls f for all terms of the outputs: the indices of an element of the output, of the images, -1 for a zero around them, and of the filters.
func (v convOf) outputs(f func(at, image, filter int)) {
	channels, filters := v.channels/v.groups, v.filters/v.groups
	for at := range v.outShape().TotalSize() {
		x, rest := at%v.out(1), at/v.out(1)
		y, rest := rest%v.out(0), rest/v.out(0)
		k, n := rest%v.filters, rest/v.filters
		for c := range channels {
			for i := range v.size[0] {
				for j := range v.size[1] {
					h, w := y*v.stride[0]-v.before[0]+i*v.dilation[0], x*v.stride[1]-v.before[1]+j*v.dilation[1]
					image := -1
					if h >= 0 && h < v.in[0] && w >= 0 && w < v.in[1] {
						image = ((n*v.channels+k/filters*channels+c)*v.in[0]+h)*v.in[1] + w
					}
					f(at, image, ((k*channels+c)*v.size[0]+i)*v.size[1]+j)
				}
			}
		}
	}
}

// transposed calls f for all terms of the adjoint: the indices of an element of the images, of the output, -1 for a zero around it, and of the filters.
func (v convOf) transposed(f func(at, out, filter int)) {
	channels, filters := v.channels/v.groups, v.filters/v.groups
	for at := range v.imageShape().TotalSize() {
		w, rest := at%v.in[1], at/v.in[1]
		h, rest := rest%v.in[0], rest/v.in[0]
		c, n := rest%v.channels, rest/v.channels
		for k := c / channels * filters; k < (c/channels+1)*filters; k++ {
			for i := range v.size[0] {
				for j := range v.size[1] {
					y, x := h+v.before[0]-i*v.dilation[0], w+v.before[1]-j*v.dilation[1]
					if y%v.stride[0] != 0 || x%v.stride[1] != 0 {
						continue
					}
					out := -1
					if y, x = y/v.stride[0], x/v.stride[1]; y >= 0 && y < v.out(0) && x >= 0 && x < v.out(1) {
						out = ((n*v.filters+k)*v.out(0)+y)*v.out(1) + x
					}
					f(at, out, ((k*channels+c%channels)*v.size[0]+i)*v.size[1]+j)
				}
			}
		}
	}
}

func (v convOf) imageShape() tensor.Shape {
	return tensor.Shape{v.images, v.channels, v.in[0], v.in[1]}
}
func (v convOf) outShape() tensor.Shape { return tensor.Shape{v.images, v.filters, v.out(0), v.out(1)} }
func (v convOf) filterShape() tensor.Shape {
	return tensor.Shape{v.filters, v.channels / v.groups, v.size[0], v.size[1]}
}

// sums adds up products a[i] b[j] into element at of n results; a[-1] is 0.
func sums(n int, a, b []float64, terms func(f func(at, i, j int))) (out, magnitude []float64) {
	totals, sizes := make([]total, n), make([]total, n)
	terms(func(at, i, j int) {
		x := 0.0
		if i >= 0 {
			x = a[i]
		}
		totals[at].addProduct(x, b[j])
		sizes[at].add(math.Abs(x * b[j]))
	})
	for i := range totals {
		out, magnitude = append(out, totals[i].value()), append(magnitude, sizes[i].value())
	}
	return out, magnitude
}

func convCase(v convOf) Case {
	return Case{Name: v.name(), Shapes: []tensor.Shape{v.imageShape(), v.filterShape()},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Conv2d(in[0], in[1], nil, v.options()...)
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			return sums(v.outShape().TotalSize(), in[0], in[1], v.outputs)
		},
	}
}

// more returns the output padding of the adjoint along an axis.
func (v convOf) more(a int) int {
	return v.in[a] - ((v.out(a)-1)*v.stride[a] - v.before[a] - v.after[a] + v.dilation[a]*(v.size[a]-1) + 1)
}

// transposedConvCase is the adjoint of v, which maps its outputs to its images.
func transposedConvCase(v convOf) Case {
	return Case{Name: "transposed " + v.name(), Shapes: []tensor.Shape{v.outShape(), v.filterShape()},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.ConvTranspose2d(in[0], in[1], nil, append(v.options(), ops.OutputPadding(v.more(0), v.more(1)))...)
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			return sums(v.imageShape().TotalSize(), in[0], in[1], v.transposed)
		},
	}
}

// line is v along the last axis alone.
func (v convOf) line() convOf {
	v.in[0], v.size[0], v.stride[0], v.before[0], v.after[0], v.dilation[0] = 1, 1, 1, 0, 0, 1
	return v
}

// lineCase is a case of v along one axis, with a bias unless v is plain.
func lineCase(v convOf, transposed bool) Case {
	v = v.line()
	c, channels := convCase(v), v.filters
	if transposed {
		c, channels = transposedConvCase(v), v.channels
	}
	without := c.Reference
	drop := func(s tensor.Shape) tensor.Shape { return tensor.Shape{s[0], s[1], s[3]} }
	c.Composed, c.Shapes = true, []tensor.Shape{drop(c.Shapes[0]), drop(c.Shapes[1]), {channels}}
	if v.plain {
		c.Shapes = c.Shapes[:2]
	}
	c.Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		opts := []ops.ConvOption{ops.Stride(v.stride[1]), ops.Padding(v.before[1], v.after[1]), ops.Dilation(v.dilation[1]), ops.Groups(v.groups)}
		var b *gorgonia.Node
		if !v.plain {
			b = in[2]
		}
		if transposed {
			return ops.ConvTranspose1d(in[0], in[1], b, append(opts, ops.OutputPadding(v.more(1)))...)
		}
		return ops.Conv1d(in[0], in[1], b, opts...)
	}
	c.Reference = func(in ...[]float64) (out, magnitude []float64) {
		out, magnitude = without(in[:2]...)
		length := len(out) / v.images / channels
		for i := 0; i < len(out) && !v.plain; i++ {
			b := in[2][i/length%channels]
			out[i], magnitude[i] = out[i]+b, magnitude[i]+math.Abs(b)
		}
		return out, magnitude
	}
	return c
}

// drawConv draws a convolution of few multiply-adds.
func drawConv(r *rand.Rand) (v convOf) {
	v.images, v.groups, v.plain = 1+r.IntN(3), 1+r.IntN(3), r.IntN(3) == 0
	v.channels, v.filters = v.groups*(1+r.IntN(4)), v.groups*(1+r.IntN(5))
	for a := range 2 {
		v.size[a], v.stride[a], v.dilation[a] = 1+r.IntN(4), 1+r.IntN(3), 1+r.IntN(2)
		reach := v.dilation[a]*(v.size[a]-1) + 1
		v.before[a], v.after[a] = r.IntN(reach), r.IntN(reach)
		v.in[a] = max(reach-v.before[a]-v.after[a], 1) + r.IntN(8)
	}
	return v
}

func conv2d(opts ...ops.ConvOption) Build {
	return binary(func(x, w *gorgonia.Node) (*gorgonia.Node, error) { return ops.Conv2d(x, w, nil, opts...) })
}

func convTranspose2d(opts ...ops.ConvOption) Build {
	return binary(func(x, w *gorgonia.Node) (*gorgonia.Node, error) { return ops.ConvTranspose2d(x, w, nil, opts...) })
}

// convSpec is the Spec of one of four convolutions. Package gemm tests the kernels in larger sizes.
func convSpec(name, formula, doc string, of func(v convOf) Case, cases []convOf, bad ...Bad) Spec {
	s := Spec{Name: name, Formula: formula, Doc: doc, Tolerance: 130, Generated: true, Bad: bad, Random: func(r *rand.Rand) Case { return of(drawConv(r)) }}
	for _, v := range cases {
		s.Cases = append(s.Cases, of(v))
	}
	return s
}

// small are a few convolutions.
var small = []convOf{
	{1, 1, 1, 1, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, [2]int{}, [2]int{}, [2]int{1, 1}, true},
	square(2, 3, 8, 4, 3, 2, 1, 1, 1),
	square(2, 6, 10, 12, 5, 3, 4, 1, 3),
	square(1, 30, 9, 20, 2, 2, 0, 1, 1),
	square(2, 4, 9, 4, 2, 3, 0, 2, 4),
}

var _ = register(convSpec("Conv2d", "out[n][k][y][x] = Σ w[k][c][i][j] x[n][c][y·s-p+i·d][x·s-p+j·d]", "Convolution of images with filters, with groups, strides, padding and dilation.", convCase, []convOf{
	square(1, 1, 1, 1, 1, 1, 0, 1, 1),
	square(2, 3, 8, 4, 3, 1, 1, 1, 1),
	square(3, 5, 9, 7, 3, 2, 1, 1, 1),
	square(2, 16, 7, 32, 1, 1, 0, 1, 1),
	square(2, 8, 11, 8, 3, 1, 2, 2, 8),  // depthwise
	square(2, 6, 10, 12, 5, 3, 4, 1, 3), // groups
	square(1, 17, 13, 70, 3, 1, 1, 1, 1),
	{2, 4, 6, 2, [2]int{5, 12}, [2]int{2, 5}, [2]int{1, 3}, [2]int{1, 0}, [2]int{0, 3}, [2]int{3, 1}, false},
},
	bad("an image of three axes", conv2d(), "want 4 axes each", tensor.Shape{3, 8, 8}, tensor.Shape{4, 3, 3, 3}),
	bad("channels of another number", conv2d(), "want groups that divide the channels", tensor.Shape{1, 3, 8, 8}, tensor.Shape{4, 2, 3, 3}),
	bad("groups that do not divide", conv2d(ops.Groups(2)), "got 2 groups", tensor.Shape{1, 3, 8, 8}, tensor.Shape{4, 1, 3, 3}),
	bad("no groups", conv2d(ops.Groups(0)), "got 0 groups", tensor.Shape{1, 3, 8, 8}, tensor.Shape{4, 3, 3, 3}),
	bad("a filter larger than the image", conv2d(), "got a filter over 3 elements of 2 with the padding", tensor.Shape{1, 1, 2, 2}, tensor.Shape{1, 1, 3, 3}),
	bad("padding alone", conv2d(ops.Padding(3)), "outputs would see padding alone", tensor.Shape{1, 1, 4, 4}, tensor.Shape{1, 1, 3, 3}),
	bad("stride 0", conv2d(ops.Stride(0)), "stride 0", tensor.Shape{1, 1, 4, 4}, tensor.Shape{1, 1, 3, 3}),
	bad("dilation 0", conv2d(ops.Dilation(1, 0)), "dilation 0", tensor.Shape{1, 1, 4, 4}, tensor.Shape{1, 1, 3, 3}),
	bad("three strides", conv2d(ops.Stride(1, 2, 3)), "got Stride [1 2 3], want one number, or one for each of 2 axes", tensor.Shape{1, 1, 4, 4}, tensor.Shape{1, 1, 3, 3}),
	bad("output padding", conv2d(ops.OutputPadding(1)), `got the option "OutputPadding"`, tensor.Shape{1, 1, 4, 4}, tensor.Shape{1, 1, 3, 3}),
	bad("bias of another length", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Conv2d(in[0], in[1], in[2]) }, "got b of shape (2), want (4)", tensor.Shape{1, 1, 4, 4}, tensor.Shape{4, 1, 3, 3}, tensor.Shape{2}),
))

var _ = register(convSpec("Conv1d", "out[n][k][y] = b[k] + Σ w[k][c][i] x[n][c][y·s-p+i·d]", "Conv2d along one axis.", func(v convOf) Case { return lineCase(v, false) }, small,
	bad("an image of four axes", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Conv1d(in[0], in[1], in[2]) }, "want 3 axes each", tensor.Shape{1, 1, 4, 4}, tensor.Shape{3, 1, 3, 3}, tensor.Shape{3}),
))

var _ = register(convSpec("ConvTranspose2d", "out[n][c][h][w] = Σ w[k][c][i][j] x[n][k][y][x], y·s-p+i·d = h, x·s-p+j·d = w", "Adjoint of Conv2d by its images.", transposedConvCase, small,
	bad("output padding of a stride", convTranspose2d(ops.Stride(2), ops.OutputPadding(2)), "got output padding 2 at stride 2", tensor.Shape{1, 1, 4, 4}, tensor.Shape{1, 1, 3, 3}),
	bad("all left out", convTranspose2d(ops.Padding(3)), "got 0 elements", tensor.Shape{1, 1, 4, 4}, tensor.Shape{1, 1, 3, 3}),
	bad("filters of another number", convTranspose2d(), "got shape (1, 2, 4, 4), want (1, 3, 4, 4)", tensor.Shape{1, 2, 4, 4}, tensor.Shape{3, 1, 3, 3}),
))

var _ = register(convSpec("ConvTranspose1d", "out[n][c][h] = b[c] + Σ w[k][c][i] x[n][k][y], y·s-p+i·d = h", "ConvTranspose2d along one axis.", func(v convOf) Case { return lineCase(v, true) }, small,
	bad("bias of the filters", func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.ConvTranspose1d(in[0], in[1], in[2]) }, "got b of shape (3), want (2)", tensor.Shape{1, 3, 4}, tensor.Shape{3, 2, 3}, tensor.Shape{3}),
))
