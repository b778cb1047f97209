package nn

import (
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Conv2d is PyTorch's Conv2d with windows of size x size: weight (out, in / groups, size, size), and bias (out) without [NoBias]. x is (batch, in, height, width),
// the result (batch, out, ...). Options: NoBias, [Stride], [Padding], [Dilation], [Groups]. As in [ops.Conv2d], padding of the windows' extent or more is an error.
func Conv2d(s *Scope, x *G.Node, out, size int, opts ...LayerOption) *G.Node {
	return convolution{"Conv2d", ops.Conv2d, 2, false}.apply(s, x, out, size, opts)
}

// Conv1d is PyTorch's Conv1d: [Conv2d] of x (batch, in, length), with weight (out, in / groups, size).
func Conv1d(s *Scope, x *G.Node, out, size int, opts ...LayerOption) *G.Node {
	return convolution{"Conv1d", ops.Conv1d, 1, false}.apply(s, x, out, size, opts)
}

// ConvTranspose2d is PyTorch's ConvTranspose2d, the adjoint of [Conv2d] w.r.t. its images: weight (in, out / groups, size, size), and bias (out) without [NoBias]. x is (batch, in,
// height, width), the result (batch, out, ...), with (height - 1) stride - 2 padding + dilation (size - 1) + 1 + output padding rows. Options: those of Conv2d and
// [OutputPadding].
func ConvTranspose2d(s *Scope, x *G.Node, out, size int, opts ...LayerOption) *G.Node {
	return convolution{"ConvTranspose2d", ops.ConvTranspose2d, 2, true}.apply(s, x, out, size, opts)
}

// ConvTranspose1d is PyTorch's ConvTranspose1d: [ConvTranspose2d] of x (batch, in, length), with weight (in, out / groups, size).
func ConvTranspose1d(s *Scope, x *G.Node, out, size int, opts ...LayerOption) *G.Node {
	return convolution{"ConvTranspose1d", ops.ConvTranspose1d, 1, true}.apply(s, x, out, size, opts)
}

// convolution is a layer with windows along its last axes.
type convolution struct {
	layer      string
	op         func(x, w, b *G.Node, opts ...ops.ConvOption) (*G.Node, error)
	axes       int
	transposed bool
}

func (c convolution) apply(s *Scope, x *G.Node, out, size int, opts []LayerOption) *G.Node {
	defaults := settings{"NoBias": 0, "Stride": 1, "Padding": 0, "Dilation": 1, "Groups": 1}
	if c.transposed {
		defaults["OutputPadding"] = 0
	}
	o := s.read(c.layer, opts, defaults)
	shape, ok := s.shape(c.layer, x, 2+c.axes, 2+c.axes, axesOf[c.axes])
	if !ok {
		return nil
	}
	in, groups := shape[1], int(o["Groups"])
	if groups < 1 || out < 1 || size < 1 || in%groups != 0 || out%groups != 0 {
		s.fail("%s got %d channels for %d in %d groups and windows of %d, want at least 1 of each, and channels that are multiples of the groups", c.layer, in, out, groups, size)
		return nil
	}
	weight := tensor.Shape{out, in / groups}
	if c.transposed {
		weight = tensor.Shape{in, out / groups}
	}
	n := weight[1]
	for range c.axes {
		weight, n = append(weight, size), n*size
	}
	of := func(option string) int { return int(o[option]) }
	settings := []ops.ConvOption{ops.Stride(of("Stride")), ops.Padding(of("Padding")), ops.Dilation(of("Dilation")), ops.Groups(groups)}
	if c.transposed {
		settings = append(settings, ops.OutputPadding(of("OutputPadding")))
	}
	w, b := s.Parameter("weight", fanIn(n), weight...), s.bias("bias", o, fanIn(n), out)
	if !s.ok() {
		return nil
	}
	return s.Keep(c.op(x, w, b, settings...))
}

// axesOf names the axes of images by the number of their last ones.
var axesOf = map[int]string{1: "(batch, channels, length)", 2: "(batch, channels, height, width)"}

// along returns an option for both axes of an image, with another value for the first one if only the second one counts.
func (o settings) along(name string, axes, first int) []int {
	if axes == 2 {
		first = int(o[name])
	}
	return []int{first, int(o[name])}
}

// window reports whether windows with a stride and padding fit an image, and keeps an error if not.
func (s *Scope) window(layer string, image, window tensor.Shape, o settings, axes int) bool {
	switch stride, pad := o["Stride"], o["Padding"]; {
	case !s.ok():
	case window[1] < 1 || stride < 1 || pad < 0:
		s.fail("%s got windows of %v, stride %v and padding %v, want at least 1, 1 and 0", layer, []int(window[2-axes:]), stride, pad)
	case image[3]+2*int(pad) < window[1] || axes == 2 && image[2]+2*int(pad) < window[0]:
		s.fail("%s got windows of %v for images of %v with padding %v, want windows within the padded image", layer, []int(window[2-axes:]), []int(image[4-axes:]), pad)
	}
	return s.ok()
}

// MaxPool2d is PyTorch's MaxPool2d: the maximum of each window of size x size, in which NaN does not count. x is (batch, channels, height, width). Options: [Stride], [Padding].
func MaxPool2d(s *Scope, x *G.Node, size int, opts ...LayerOption) *G.Node {
	return s.pool("MaxPool2d", G.MaxPool2D, 2, x, size, opts)
}

// AvgPool2d is PyTorch's AvgPool2d: the mean of each window of size x size, in which zeros of the padding count. x is (batch, channels, height, width).
// Options: [Stride], [Padding].
func AvgPool2d(s *Scope, x *G.Node, size int, opts ...LayerOption) *G.Node {
	return s.pool("AvgPool2d", G.AveragePool2D, 2, x, size, opts)
}

// MaxPool1d is PyTorch's MaxPool1d: [MaxPool2d] of (batch, channels, length).
func MaxPool1d(s *Scope, x *G.Node, size int, opts ...LayerOption) *G.Node {
	return s.pool("MaxPool1d", G.MaxPool2D, 1, x, size, opts)
}

// AvgPool1d is PyTorch's AvgPool1d: [AvgPool2d] of (batch, channels, length).
func AvgPool1d(s *Scope, x *G.Node, size int, opts ...LayerOption) *G.Node {
	return s.pool("AvgPool1d", G.AveragePool2D, 1, x, size, opts)
}

// pool is a function of Gorgonia over the last axes of x.
func (s *Scope) pool(layer string, f func(*G.Node, tensor.Shape, []int, []int) (*G.Node, error), axes int, x *G.Node, size int, opts []LayerOption) *G.Node {
	o := s.read(layer, opts, settings{"Stride": float64(size), "Padding": 0})
	shape, ok := s.shape(layer, x, 2+axes, 2+axes, axesOf[axes])
	if !ok {
		return nil
	}
	image, window := shape, tensor.Shape{size, size}
	if axes == 1 {
		image, window[0] = tensor.Shape{shape[0], shape[1], 1, shape[2]}, 1
		x = s.Keep(ops.Reshape(x, image...))
	}
	if !s.window(layer, image, window, o, axes) || !s.room(layer, x.Dtype(), shape) { // Gorgonia's ops hold memory for a result
		return nil
	}
	if pad := int(o["Padding"]); 2*pad > size {
		s.fail("%s got padding %d for windows of %d, want at most half of it", layer, pad, size)
	}
	y := s.try(layer, func() (*G.Node, error) {
		return f(x, window, o.along("Padding", axes, 0), o.along("Stride", axes, 1))
	})
	if axes == 1 && y != nil {
		y = s.Keep(ops.Reshape(y, shape[0], shape[1], y.Shape()[3]))
	}
	return y
}

// GlobalAvgPool is the mean of each channel over the axes behind it: (batch, channels, ...) becomes (batch, channels). It is PyTorch's AdaptiveAvgPool2d(1) and
// Flatten.
func GlobalAvgPool(s *Scope, x *G.Node) *G.Node {
	shape, ok := s.shape("GlobalAvgPool", x, 3, 0, "(batch, channels, ...)")
	if !ok {
		return nil
	}
	var axes []int
	for a := 2; a < len(shape); a++ {
		axes = append(axes, a)
	}
	return s.Keep(ops.Mean(x, axes...))
}
