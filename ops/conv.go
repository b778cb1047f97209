package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ConvOption is an option of convolutions: [Stride], [Padding], [Dilation], [Groups] or [OutputPadding].
type ConvOption struct {
	name   string
	values []int
}

// Stride sets the distance of neighbouring outputs, for all axes or for each, 1 by default. For a transposed convolution it is that of neighbouring inputs.
func Stride(n ...int) ConvOption { return ConvOption{"Stride", n} }

// Padding sets how many zeros surround the image: one number for all sides, or one for both sides of each axis, or two for each axis, before it and after it. It is 0 by
// default. For a transposed convolution it is how many elements are left out.
func Padding(n ...int) ConvOption { return ConvOption{"Padding", n} }

// Dilation sets the distance of neighbouring elements of a filter in the image, for all axes or for each, 1 by default.
func Dilation(n ...int) ConvOption { return ConvOption{"Dilation", n} }

// Groups divides the channels into n groups of equal size, and the filters likewise. A filter reads the channels of its group.
func Groups(n int) ConvOption { return ConvOption{"Groups", []int{n}} }

// OutputPadding makes the output of a transposed convolution longer at its end, for all axes or for each. It is less than the stride.
func OutputPadding(n ...int) ConvOption { return ConvOption{"OutputPadding", n} }

// Conv2d is the convolution of images with filters, as PyTorch's conv2d (a correlation: filters are not mirrored):
//
//	out[n][k][y][x] = b[k] + Σ w[k][c][i][j] x[n][c'][y stride - padding + i dilation][x stride - padding + j dilation] over c, i, j
//
//	x             w                  b    out
//	(N, C, H, W)  (K, C/groups, R, S)  (K)  (N, K, OH, OW), OH = (H + padding before and after - dilation (R-1) - 1) / stride + 1
//
// x is 0 outside. Filter k reads the channels of group k groups / K: c' = c + C/groups * group. x, w and b are of float32 or float64, one type; b may be nil. The
// options are [Stride], [Padding], [Dilation] and [Groups]. A filter that reaches beyond the padded image is an error, and so is padding as long as the filter, at which
// outputs would see padding alone.
func Conv2d(x, w, b *gorgonia.Node, opts ...ConvOption) (*gorgonia.Node, error) {
	return named("Conv2d")(convolve(x, w, b, 2, false, opts))
}

// Conv1d is [Conv2d] along one axis: x is (N, C, L), w (K, C/groups, S) and out (N, K, OL).
func Conv1d(x, w, b *gorgonia.Node, opts ...ConvOption) (*gorgonia.Node, error) {
	return named("Conv1d")(convolve(x, w, b, 1, false, opts))
}

// ConvTranspose2d is the adjoint of [Conv2d] w.r.t. its images, as PyTorch's conv_transpose2d, and adds a bias:
//
//	x             w                  b    out
//	(N, K, H, W)  (K, C/groups, R, S)  (C)  (N, C, OH, OW), OH = (H - 1) stride - padding before and after + dilation (R-1) + 1 + output padding
//
// b may be nil. The options are those of Conv2d and [OutputPadding].
func ConvTranspose2d(x, w, b *gorgonia.Node, opts ...ConvOption) (*gorgonia.Node, error) {
	return named("ConvTranspose2d")(convolve(x, w, b, 2, true, opts))
}

// ConvTranspose1d is [ConvTranspose2d] along one axis: x is (N, K, L), w (K, C/groups, S) and out (N, C, OL).
func ConvTranspose1d(x, w, b *gorgonia.Node, opts ...ConvOption) (*gorgonia.Node, error) {
	return named("ConvTranspose1d")(convolve(x, w, b, 1, true, opts))
}

func named(op string) func(*gorgonia.Node, error) (*gorgonia.Node, error) {
	return func(n *gorgonia.Node, err error) (*gorgonia.Node, error) {
		if err != nil {
			return nil, fmt.Errorf("ops: %s: %w", op, err)
		}
		return n, nil
	}
}

// convolve convolves along one or two axes.
func convolve(x, w, b *gorgonia.Node, axes int, transposed bool, opts []ConvOption) (*gorgonia.Node, error) {
	inputs := []*gorgonia.Node{x, w}
	if b != nil {
		inputs = append(inputs, b)
	}
	inputs, types, err := floatsOf(inputs...)
	if err != nil {
		return nil, err
	}
	x, w = inputs[0], inputs[1]
	image, filter := types[0].Shape, types[1].Shape
	if len(image) != 2+axes || len(filter) != 2+axes {
		return nil, fmt.Errorf("got x of shape %v and w of shape %v, want %d axes each", image, filter, 2+axes)
	}
	image, filter = image.Clone(), filter.Clone()
	if axes == 1 {
		image, filter = slices.Insert(image, 2, 1), slices.Insert(filter, 2, 1)
		if x, err = reshaped(x, image); err == nil {
			w, err = reshaped(w, filter)
		}
		if err != nil {
			return nil, err
		}
	}
	c, err := newConv(image, filter, axes, transposed, opts)
	if err != nil {
		return nil, err
	}
	out, err := Apply(c, x, w)
	if err != nil {
		return nil, err
	}
	shape := out.Shape().Clone()
	if b != nil {
		if s := types[2].Shape; len(s) != 1 || s[0] != shape[1] {
			return nil, fmt.Errorf("got b of shape %v, want (%d)", s, shape[1])
		}
		if b, err = reshaped(inputs[2], tensor.Shape{shape[1], 1, 1}); err == nil {
			out, err = Map("a + b", out, b)
		}
		if err != nil {
			return nil, err
		}
	}
	if axes == 1 {
		return reshaped(out, slices.Delete(shape, 2, 3))
	}
	return out, nil
}

// newConv returns the convolution of an image and a filter of two axes, of which the first is of one element if axes is 1.
func newConv(image, filter tensor.Shape, axes int, transposed bool, opts []ConvOption) (c conv, err error) {
	c.groups = 1
	stride, dilation, before, after, more := [2]int{1, 1}, [2]int{1, 1}, [2]int{}, [2]int{}, [2]int{}
	set := map[string]*[2]int{"Stride": &stride, "Dilation": &dilation, "Padding": &before}
	if transposed {
		set["OutputPadding"], c.result = &more, gemm.ConvImages
	}
	for _, o := range opts {
		n, to := o.values, set[o.name]
		switch {
		case o.name == "Groups":
			c.groups = n[0]
		case to == nil:
			return c, fmt.Errorf("got the option %q, want Stride, Padding, Dilation or Groups, or for a transposed convolution OutputPadding", o.name)
		case to == &before && len(n) == 2*axes:
			for a := range axes {
				before[2-axes+a], after[2-axes+a] = n[2*a], n[2*a+1]
			}
		case len(n) != 1 && len(n) != axes:
			return c, fmt.Errorf("got %s %v, want one number, or one for each of %d axes", o.name, n, axes)
		default:
			for a := range axes {
				to[2-axes+a] = n[a%len(n)]
			}
			if to == &before {
				after = before
			}
		}
	}
	for a := range 2 {
		c.axes[a] = gemm.ConvAxis{In: int64(image[2+a]), Size: int64(filter[2+a]), Stride: int64(stride[a]), Dilation: int64(dilation[a]), Before: int64(before[a]), After: int64(after[a])}
		if transposed {
			if more[a] < 0 || more[a] >= max(stride[a], 1) {
				return c, fmt.Errorf("got output padding %d at stride %d, want 0 or more and less than the stride", more[a], stride[a])
			}
			c.axes[a].In = int64((image[2+a]-1)*stride[a] - before[a] - after[a] + dilation[a]*(filter[2+a]-1) + 1 + more[a])
		}
	}
	return c, nil
}

// conv is a convolution, or a gradient of it, which is linear in both of its inputs.
type conv struct {
	axes   [2]gemm.ConvAxis
	groups int
	result gemm.ConvResult
}

func (c conv) String() string {
	name := [...]string{"Conv", "ConvTranspose", "ConvFilters"}[c.result]
	r, s := c.axes[0], c.axes[1]
	return fmt.Sprintf("%s[%dx%d stride %d,%d padding %d,%d,%d,%d dilation %d,%d groups %d]", name, r.Size, s.Size, r.Stride, s.Stride, r.Before, r.After, s.Before, s.After, r.Dilation, s.Dilation, c.groups)
}

// problem returns the problem of inputs.
func (c conv) problem(in ...Type) (v gemm.Conv, err error) {
	if err := CheckFloats(in, 2); err != nil {
		return v, err
	}
	for i, t := range in {
		if len(t.Shape) != 4 {
			return v, fmt.Errorf("input %d: got shape %v, want 4 axes", i, t.Shape)
		}
	}
	for i, a := range c.axes {
		if err := a.Check(); err != nil {
			return v, fmt.Errorf("%s: %w", [...]string{"rows", "columns"}[i], err)
		}
	}
	a, b := in[0].Shape, in[1].Shape
	v = gemm.Conv{Dtype: in[0].Dtype, Groups: int64(c.groups), Rows: c.axes[0], Columns: c.axes[1], Images: int64(a[0]), Channels: int64(a[1]), Filters: int64(b[0]), Result: c.result}
	channels := b[1] // of a group
	switch c.result {
	case gemm.ConvImages:
		v.Channels = int64(c.groups * b[1])
	case gemm.ConvFilters:
		v.Filters, channels = int64(b[1]), a[1]/max(c.groups, 1)
	}
	if c.groups < 1 || v.Channels%v.Groups != 0 || v.Filters%v.Groups != 0 || int64(channels) != v.Channels/v.Groups {
		return v, fmt.Errorf("got %d groups and inputs of shapes %v and %v, want groups that divide the channels and the filters, and filters of the channels of a group", c.groups, a, b)
	}
	want := shapesOfConv(v)
	for i, r := range convInputs[c.result] {
		if !sameShape(in[i].Shape, want[r]) {
			return v, fmt.Errorf("input %d: got shape %v, want %v", i, in[i].Shape, want[r])
		}
	}
	return v, nil
}

// convInputs has the inputs by result.
var convInputs = [3][2]gemm.ConvResult{{gemm.ConvImages, gemm.ConvFilters}, {gemm.ConvOutput, gemm.ConvFilters}, {gemm.ConvImages, gemm.ConvOutput}}

// shapesOfConv returns the shapes of the output, the images and the filters.
func shapesOfConv(v gemm.Conv) [3]tensor.Shape {
	n, c, k := int(v.Images), int(v.Channels), int(v.Filters)
	return [3]tensor.Shape{
		{n, k, int(v.Rows.Out()), int(v.Columns.Out())},
		{n, c, int(v.Rows.In), int(v.Columns.In)},
		{k, c / int(v.Groups), int(v.Rows.Size), int(v.Columns.Size)},
	}
}

func (c conv) Infer(in ...Type) (Type, error) {
	v, err := c.problem(in...)
	if err != nil {
		return Type{}, err
	}
	return Type{v.Dtype, shapesOfConv(v)[c.result]}, nil
}

func (c conv) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	v, err := c.problem(in...)
	if err != nil {
		return nil, err
	}
	return v.Plan(dev)
}

// Conv returns the problem of a convolution of [Conv2d] and its kin, or of a gradient of it; ok is false for any other op.
func (o *Op) Conv() (v gemm.Conv, ok bool) {
	c, ok := o.primitive.(conv)
	if !ok {
		return v, false
	}
	v, err := c.problem(o.in...)
	return v, err == nil
}

// Adjoints are convolutions again: the gradient w.r.t. an operand is the operation whose result that operand is, with the gradient in the place of this result.
func (c conv) Adjoints(b *Backward) []Term {
	terms := make([]Term, 2)
	operands := convInputs[c.result]
	for i, wrt := range operands {
		d := c
		d.result = wrt
		var of [2]Term
		for k, r := range convInputs[wrt] {
			if of[k] = b.Grad(); r == operands[1-i] {
				of[k] = b.In(1 - i)
			}
		}
		terms[i] = b.Apply(d, of[0], of[1])
	}
	return terms
}
