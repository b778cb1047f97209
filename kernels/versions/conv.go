package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/window"
)

type convArgs struct {
	Images, Filters, Out    kernels.Ref
	Pixels, Channels, Count int64 `arg:"int32"` // outputs of a filter, channels of an image, filters
	Rows, Columns           convAxis
}

// convAxis is windows.cuh's Axis.
type convAxis struct {
	In, Out, Size, Stride, Dilation, Pad int64 `arg:"int32"`
}

var convDirect = library.Kernel("conv", "conv_direct_f32", convBody)

// Conv plans version v of a convolution: images, filters and outputs as [gemm.Conv] has them, of float32, in one group and without rounding. Version 3 is the op's kernel for devices without tensor
// cores for it, version 4 that of the device. Version 5 is for compute capability 9.0 and the host: it rounds to BF16, and images and outputs are stored so with their channels last.
func Conv(dev kernels.Device, v int, c gemm.Conv) (*kernels.Plan, error) {
	if err := check("conv", v, len(docs["Conv"])); err != nil {
		return nil, err
	}
	plain := gemm.Conv{Dtype: kernels.Float32, Images: c.Images, Channels: c.Channels, Filters: c.Filters, Groups: 1, Rows: c.Rows, Columns: c.Columns}
	if c != plain {
		return nil, fmt.Errorf("versions: conv: got %+v, want %+v", c, plain)
	}
	op, err := c.Plan(dev)
	if err != nil || v == 4 {
		return op, err
	}
	p := &kernels.Plan{Op: op.Op, Inputs: op.Inputs, Out: op.Out, Flops: op.Flops}
	switch v {
	case 1:
		pixels := c.Images * c.Rows.Out() * c.Columns.Out()
		blocks := kernels.CeilDiv(pixels, 256) * c.Filters
		p.Launch(convDirect, int(blocks), 256, convArgs{in0, in1, out, pixels, c.Channels, c.Filters, newConvAxis(c.Rows), newConvAxis(c.Columns)})
		return p.Or(kernels.CheckGrid(blocks))
	case 2:
		return p.Or(throughWindows(p, dev, c))
	case 3:
		dev.Major, dev.Minor = min(dev.Major, 8), 0
		return c.Plan(dev)
	}
	if c.Round, c.ChannelsLast = kernels.BF16, [2]bool{true, true}; dev.Kind == kernels.CPU { // the Go bodies of that device's kernels
		dev = kernels.Device{Name: dev.Name, Major: 9, SMs: dev.SMs}
	}
	return c.Plan(dev)
}

func newConvAxis(a gemm.ConvAxis) convAxis {
	return convAxis{a.In, a.Out(), a.Size, a.Stride, a.Dilation, a.Before}
}

// throughWindows appends im2col, a product of windows and filters, and a transposition.
func throughWindows(p *kernels.Plan, dev kernels.Device, c gemm.Conv) error {
	axis := func(a gemm.ConvAxis) window.WindowAxis {
		return window.WindowAxis{In: int(a.In), Size: int(a.Size), Stride: int(a.Stride), Dilation: int(a.Dilation), Before: int(a.Before), After: int(a.After)}
	}
	first, err := window.Im2Col(dev, c.Dtype, c.Images, c.Channels, window.Windows{Rows: axis(c.Rows), Columns: axis(c.Columns)})
	if err != nil {
		return err
	}
	pixels := c.Rows.Out() * c.Columns.Out()
	second, err := gemm.Product{Dtype: c.Dtype, Batch: 1, M: c.Images * pixels, N: c.Filters, K: c.Channels * c.Rows.Size * c.Columns.Size, B: gemm.Operand{Trans: true}}.Plan(dev)
	if err != nil {
		return err
	}
	same, err := expr.Identity(c.Dtype)
	if err != nil {
		return err
	}
	third, err := codegen.Map(dev, same, []int{int(c.Images), int(c.Filters), int(pixels)}, codegen.View{Elements: c.Images * c.Filters * pixels, Strides: []int{int(pixels * c.Filters), 1, int(c.Filters)}})
	if err != nil {
		return err
	}
	windows, product := p.Workspace(first.Out), p.Workspace(second.Out)
	appendPlan(p, first, windows, in0)
	appendPlan(p, second, product, windows, in1)
	appendPlan(p, third, out, product)
	return nil
}

// convBody computes by the definition.
func convBody(call kernels.Call) {
	a := kernels.Args[convArgs](call)
	images, filters, out := kernels.Slice[float32](call, a.Images), kernels.Slice[float32](call, a.Filters), kernels.Slice[float32](call, a.Out)
	plane, window, size := a.Rows.Out*a.Columns.Out, a.Channels*a.Rows.Size*a.Columns.Size, a.Rows.In*a.Columns.In
	kernels.Parallel(a.Pixels*a.Count, 1+kernels.Grain/window, func(lo, hi int64) {
		for n := lo; n < hi; n++ {
			image, at := n/plane/a.Count, n%plane
			top, left := at/a.Columns.Out*a.Rows.Stride-a.Rows.Pad, at%a.Columns.Out*a.Columns.Stride-a.Columns.Pad
			var sum float32
			for k, w := range filters[n/plane%a.Count*window:][:window] {
				tap := int64(k)
				c, i, j := tap/a.Columns.Size/a.Rows.Size, tap/a.Columns.Size%a.Rows.Size, tap%a.Columns.Size
				if y, x := top+i*a.Rows.Dilation, left+j*a.Columns.Dilation; y >= 0 && y < a.Rows.In && x >= 0 && x < a.Columns.In {
					sum += w * images[(image*a.Channels+c)*size+y*a.Columns.In+x]
				}
			}
			out[n] = sum
		}
	})
}
