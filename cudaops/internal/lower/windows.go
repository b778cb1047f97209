package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/window"
	"gorgonia.org/tensor"
)

// The rules of this file lower ops with sliding windows: im2col for convolutions, pooling, and upsampling.

// windowed plans a kernel on windows.
type windowed struct {
	name             string
	dtype            kernels.Dtype
	images, channels int64
	windows          window.Windows
	div              float64 // of averages
}

// String names the kernel with the size of its windows.
func (w windowed) String() string {
	return fmt.Sprintf("%s[%dx%d]", w.name, w.windows.Rows.Size, w.windows.Columns.Size)
}

func (w windowed) Plan(dev kernels.Device) (*kernels.Plan, error) {
	planes := w.images * w.channels
	switch w.name {
	case "im2col":
		return window.Im2Col(dev, w.dtype, w.images, w.channels, w.windows)
	case "col2im":
		return window.Col2Im(dev, w.dtype, w.images, w.channels, w.windows)
	case "average-pool":
		return window.AveragePool(dev, w.dtype, planes, w.windows, w.div)
	}
	return window.AveragePoolDiff(dev, w.dtype, planes, w.windows, w.div)
}

// windows lowers Im2Col (a part of Conv1d and Conv2d), MaxPool1D, MaxPool2D, AveragePool2D, Upsample2D and their gradients.
//
// An average is the sum divided by the number of elements of a window, including those outside of the image. Gorgonia divides by
// the number of columns of the image, and its gradient is that of another function.
func windows(c *call) *program.Value {
	w, ok := internal.Windows(c.node.Op())
	if !ok || len(c.in) == 0 || !c.floats(len(c.in)) {
		return nil
	}
	// images is the value that the windows slide over; columns has one element for each window, or all of its elements.
	images, columns := c.in[0].Shape, c.Shape
	switch {
	case w.Name == "upsample" && !w.Derivative:
		return c.upsampled(w.Size[0])
	case w.Name == "upsample": // the gradient sums the copies of an element
		images, columns = c.in[len(c.in)-1].Shape, c.Shape
	case w.Derivative:
		images, columns = c.Shape, c.in[len(c.in)-1].Shape
	}
	if len(images) != 4 {
		return nil
	}
	k := windowed{dtype: c.Dtype, images: int64(images[0]), channels: int64(images[1]), windows: window.Windows{
		Rows:    windowAxis(w, 0, images[2]),
		Columns: windowAxis(w, 1, images[3]),
	}}
	rows, across := k.windows.Rows.Out(), k.windows.Columns.Out()
	want, in := tensor.Shape{images[0], images[1], rows, across}, c.in
	switch {
	case w.Name == "im2col":
		k.name = "im2col"
		want = tensor.Shape{images[0], rows, across, images[1] * w.Size[0] * w.Size[1]}
		if w.Derivative {
			k.name = "col2im"
		}
	case w.Name == "maxpool":
		if w.Derivative {
			in = []*program.Value{in[0], in[2]}
		}
	case w.Name == "averagepool" && w.Derivative:
		k.name, k.div, in = "average-pool derivative", float64(w.Size[0]*w.Size[1]), in[2:]
	case w.Name == "averagepool":
		k.name, k.div = "average-pool", float64(w.Size[0]*w.Size[1])
	default:
		k.name, k.div, in = "average-pool", 1, in[2:]
	}
	if !slices.Equal(columns, want) {
		return nil
	}
	var planner kernels.Planner = k
	if w.Name == "maxpool" {
		planner = window.MaxPooling{Dtype: k.dtype, Images: k.images, Channels: k.channels, Windows: k.windows, Gradient: w.Derivative}
	}
	if _, err := planner.Plan(kernels.HostDevice()); err != nil {
		return nil // no kernel supports these windows
	}
	return c.emit(program.Kernel{Planner: planner}, c.Type, in...)
}

// windowAxis returns the windows along an axis, rows or columns.
func windowAxis(w internal.Windowed, axis, elements int) window.WindowAxis {
	return window.WindowAxis{
		In: elements, Size: w.Size[axis], Stride: w.Stride[axis], Dilation: w.Dilation[axis],
		Before: w.Before[axis], After: w.After[axis],
	}
}

// upsampled repeats each element of the input along rows and columns.
func (c *call) upsampled(times int) *program.Value {
	x := c.in[0]
	if len(x.Shape) != 4 || !slices.Equal(c.Shape, tensor.Shape{x.Shape[0], x.Shape[1], x.Shape[2] * times, x.Shape[3] * times}) {
		return nil
	}
	t, view := x.Type, program.View{Offset: x.View.Offset, Strides: x.View.Strides}
	t.Shape = slices.Concat(x.Shape[:3], []int{times}, x.Shape[3:], []int{times})
	view.Strides = slices.Concat(x.View.Strides[:3], []int64{0}, x.View.Strides[3:], []int64{0})
	return c.reshaped(c.alias(x, t, view), c.Shape)
}
