package nn

import (
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Conv2d is PyTorch's Conv2d with windows of size x size: weight (out, in / groups, size, size), and bias (out) without [NoBias]. x is (batch, in, height, width),
// the result (batch, out, ...). Options: NoBias, [Stride], [Padding], [Dilation], [Groups].
func Conv2d(s *Scope, x *G.Node, out, size int, opts ...LayerOption) *G.Node {
	o := s.convolution("Conv2d", opts)
	shape, ok := s.shape("Conv2d", x, 4, 4, "(batch, channels, height, width)")
	if !ok {
		return nil
	}
	return s.convolve("Conv2d", x, shape, out, tensor.Shape{size, size}, 2, o)
}

// Conv1d is PyTorch's Conv1d: weight (out, in / groups, size), and bias (out) without [NoBias]. x is (batch, in, length), the result (batch, out, ...). Options:
// NoBias, [Stride], [Padding], [Dilation], [Groups].
func Conv1d(s *Scope, x *G.Node, out, size int, opts ...LayerOption) *G.Node {
	o := s.convolution("Conv1d", opts)
	shape, ok := s.shape("Conv1d", x, 3, 3, "(batch, channels, length)")
	if !ok {
		return nil
	}
	image := tensor.Shape{shape[0], shape[1], 1, shape[2]}
	y := s.convolve("Conv1d", s.Keep(ops.Reshape(x, image...)), image, out, tensor.Shape{1, size}, 1, o)
	if y == nil {
		return nil
	}
	return s.Keep(ops.Reshape(y, shape[0], out, y.Shape()[3]))
}

func (s *Scope) convolution(layer string, opts []LayerOption) settings {
	o := s.read(layer, opts, settings{"NoBias": 0, "Stride": 1, "Padding": 0, "Dilation": 1, "Groups": 1})
	if o["Groups"] < 1 || o["Dilation"] < 1 {
		s.fail("%s got %v groups and dilation %v, want at least 1", layer, o["Groups"], o["Dilation"])
	}
	return o
}

// convolve convolves an image by windows, whose last axes are in the weight.
func (s *Scope) convolve(layer string, x *G.Node, shape tensor.Shape, out int, window tensor.Shape, axes int, o settings) *G.Node {
	groups, pad, stride, dilation := int(o["Groups"]), o.along("Padding", axes, 0), o.along("Stride", axes, 1), o.along("Dilation", axes, 1)
	reach := tensor.Shape{dilation[0]*(window[0]-1) + 1, dilation[1]*(window[1]-1) + 1}
	if shape[1]%groups != 0 || out%groups != 0 {
		s.fail("%s got %d channels for %d in %d groups, want multiples of the groups", layer, shape[1], out, groups)
	}
	if !s.window(layer, shape, reach, o, axes) {
		return nil
	}
	in := shape[1] / groups
	n := in * window.TotalSize()
	weight, bias := s.Parameter("weight", fanIn(n), append([]int{out, in}, window[2-axes:]...)...), s.bias("bias", o, fanIn(n), out)
	var y *G.Node
	if groups > 1 || o["Dilation"] > 1 {
		y = s.taps(x, weight, window, groups, pad, stride, dilation)
	} else {
		if axes == 1 {
			weight = s.Keep(ops.Reshape(weight, out, in, 1, window[1]))
		}
		y = s.try("Conv2d", func() (*G.Node, error) { return G.Conv2d(x, weight, window, pad, stride, []int{1, 1}) })
	}
	if bias == nil {
		return y
	}
	return s.Keep(ops.Map("a + b", y, s.Keep(ops.Reshape(bias, out, 1, 1))))
}

// taps convolves with dilation and groups: it takes a slice of the padded image for each element of the window, and a matmul for each group. Gorgonia's Conv2d has no groups, and
// the hash of its im2col omits the dilation.
func (s *Scope) taps(x, weight *G.Node, window tensor.Shape, groups int, pad, stride, dilation []int) *G.Node {
	for a, n := range pad {
		x = s.Keep(ops.Pad(x, 2+a, n, n))
	}
	if !s.ok() {
		return nil
	}
	shape, out, size := x.Shape(), weight.Shape()[0], window.TotalSize()
	extent := func(a int) int { return (shape[2+a]-dilation[a]*(window[a]-1)-1)/stride[a] + 1 }
	along := func(a, i int) tensor.Slice {
		return G.S(i*dilation[a], i*dilation[a]+(extent(a)-1)*stride[a]+1, stride[a])
	}
	var parts []*G.Node
	for i := range size {
		parts = append(parts, s.Keep(ops.Slice(x, nil, nil, along(0, i/window[1]), along(1, i%window[1]))))
	}
	y := s.Keep(ops.Permute(s.Keep(ops.Stack(2, parts...)), 1, 2, 0, 3, 4)) // (channels, size, batch, ...)
	y = s.Keep(ops.Reshape(y, groups, shape[1]/groups*size, -1))
	y = s.Keep(ops.MatMul(s.Keep(ops.Reshape(weight, groups, out/groups, shape[1]/groups*size)), y))
	return s.Keep(ops.Permute(s.Keep(ops.Reshape(y, out, shape[0], extent(0), extent(1))), 1, 0, 2, 3))
}

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

// MaxPool2d is PyTorch's MaxPool2d: the maximum of each window of size x size. x is (batch, channels, height, width). Options: [Stride], [Padding].
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
	shape, ok := s.shape(layer, x, 2+axes, 2+axes, map[int]string{1: "(batch, channels, length)", 2: "(batch, channels, height, width)"}[axes])
	if !ok {
		return nil
	}
	image, window := shape, tensor.Shape{size, size}
	if axes == 1 {
		image, window[0] = tensor.Shape{shape[0], shape[1], 1, shape[2]}, 1
		x = s.Keep(ops.Reshape(x, image...))
	}
	if !s.window(layer, image, window, o, axes) {
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
