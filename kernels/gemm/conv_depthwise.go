package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Kernels of conv_depthwise.cu, by result.
var depthwiseKernels = [3][2]*kernels.Kernel{
	own.Pair("conv_depthwise", "conv_depthwise", depthwiseBody[float32], depthwiseBody[float64]),
	own.Pair("conv_depthwise", "conv_depthwise_images", depthwiseImagesBody[float32], depthwiseImagesBody[float64]),
	own.Pair("conv_depthwise", "conv_depthwise_filters", depthwiseFiltersBody[float32], depthwiseFiltersBody[float64]),
}

const (
	depthwiseBytes  = 24 << 10  // of windows in shared memory that a block should have: 8 blocks share an SM
	depthwiseMax    = 160 << 10 // that it may have, with the sums of filters, where a device has so much
	depthwiseBlocks = 8         // of an SM, wanted
	depthwiseRows   = 4         // results of a thread, one below the other
)

// axisArgs is windows.cuh's Axis, and bandArgs conv_depthwise.cu's Band.
type axisArgs struct {
	In, Out, Size, Stride, Dilation, Pad int64 `arg:"int32"`
}
type bandArgs struct {
	Each, Rows int64 `arg:"int32"`
	High, Wide arith.Divide
}

type depthwiseArgs struct {
	Images, Filters, Out kernels.Ref
	Planes               int64 `arg:"int32"`
	Channels             arith.Divide
	Y, X                 axisArgs
	Band                 bandArgs
	Mirrored             bool
	Strips, Across       arith.Divide
}

type depthwiseImagesArgs struct {
	Outputs, Filters, Out    kernels.Ref
	Planes                   int64 `arg:"int32"`
	Channels                 arith.Divide
	Y, X                     axisArgs
	Band                     bandArgs
	StrideY, StrideX, Across arith.Divide
}

type depthwiseFiltersArgs struct {
	Images, Outputs, Out   kernels.Ref
	Count, Channels, Chunk int64 `arg:"int32"`
	Y, X                   axisArgs
	Band                   bandArgs
	Pixels, Across         arith.Divide
}

func (a ConvAxis) args() axisArgs {
	return axisArgs{a.In, a.Out(), a.Size, a.Stride, a.Dilation, a.Before}
}

// mirrored returns the convolution of outputs that is the gradient w.r.t. images at stride 1.
func (a ConvAxis) mirrored() axisArgs {
	return axisArgs{a.Out(), a.In, a.Size, 1, a.Dilation, a.reach() - 1 - a.Before}
}

// met returns how many elements n results meet: outputs elements of images, or elements of images outputs.
func (a axisArgs) met(n int64, images bool) int64 {
	if images {
		return (n-1+(a.Size-1)*a.Dilation)/a.Stride + 1
	}
	return (n-1)*a.Stride + (a.Size-1)*a.Dilation + 1
}

// band returns the planes, of at most so many, and the rows of a block, and the bytes of what they meet.
func (v Conv) band(y, x axisArgs, planes int64, images bool) (b bandArgs, bytes int64) {
	rows, columns := y.Out, x.Out
	if images {
		rows, columns = y.In, x.In
	}
	wide := x.met(columns, images)
	for b.Rows = arith.RoundUp(rows, depthwiseRows); b.Rows > depthwiseRows && y.met(b.Rows, images)*wide*v.Dtype.Size() > depthwiseBytes; {
		b.Rows = arith.RoundUp(b.Rows/2, depthwiseRows)
	}
	high := y.met(b.Rows, images)
	b.High, b.Wide = arith.DivideBy(high), arith.DivideBy(wide)
	plane := high * wide * v.Dtype.Size()
	b.Each = max(min(depthwiseBytes/plane, planes), 1)
	return b, b.Each * plane
}

// depthwise appends the launches for channels of a filter each; ok is false for other convolutions and those of which a block has no room for a few rows.
func (v Conv) depthwise(p *kernels.Plan, dev kernels.Device) (ok bool, err error) {
	if v.Groups != v.Channels || v.Groups != v.Filters || dev.Kind == kernels.CPU {
		return false, nil
	}
	y, x, planes, wanted := v.Rows.args(), v.Columns.args(), v.Images*v.Channels, depthwiseBlocks*int64(dev.SMs)
	kernel, in := depthwiseKernels[v.Result][v.Dtype], [2]kernels.Ref{kernels.In(0), kernels.In(1)}
	if v.Result == ConvFilters {
		splits := min(kernels.CeilDiv(wanted, v.Channels), v.Images)
		chunk := kernels.CeilDiv(v.Images, splits)
		splits = kernels.CeilDiv(v.Images, chunk)
		b, bytes := v.band(y, x, chunk, false)
		if bytes += 256 * y.Size * x.Size * v.Dtype.Size(); bytes > min(depthwiseMax, int64(dev.SharedOptin)) {
			return false, nil
		}
		a := depthwiseFiltersArgs{in[0], in[1], out, v.Images, v.Channels, chunk, y, x, b, arith.DivideBy(b.Rows * x.Out), arith.DivideBy(x.Out)}
		if splits > 1 {
			a.Out = p.Workspace(splits * p.Out)
		}
		p.Launch(kernel, int(splits*v.Channels), convThreads, a).Shared = int(bytes)
		if splits > 1 {
			(&problem{Product: Product{Dtype: v.Dtype, Batch: 1, M: 1, N: p.Out / v.Dtype.Size()}}).combine(p, a.Out, splits)
		}
		return true, kernels.CheckGrid(splits * v.Channels)
	}
	images := v.Result == ConvImages
	mirrored := images && v.Rows.Stride == 1 && v.Columns.Stride == 1
	if mirrored {
		y, x, kernel, images = v.Rows.mirrored(), v.Columns.mirrored(), depthwiseKernels[ConvOutput][v.Dtype], false
	}
	b, bytes := v.band(y, x, max(planes/wanted, 1), images)
	if bytes += b.Each * y.Size * x.Size * v.Dtype.Size(); bytes > min(depthwiseMax, int64(dev.SharedOptin)) {
		return false, nil
	}
	if images {
		blocks := kernels.CeilDiv(planes, b.Each) * kernels.CeilDiv(y.In, b.Rows)
		p.Launch(kernel, int(blocks), convThreads, depthwiseImagesArgs{in[0], in[1], out, planes, arith.DivideBy(v.Channels), y, x, b, arith.DivideBy(y.Stride), arith.DivideBy(x.Stride), arith.DivideBy(x.In)}).Shared = int(bytes)
		return true, kernels.CheckGrid(blocks)
	}
	blocks := kernels.CeilDiv(planes, b.Each) * kernels.CeilDiv(y.Out, b.Rows)
	p.Launch(kernel, int(blocks), convThreads, depthwiseArgs{in[0], in[1], out, planes, arith.DivideBy(v.Channels), y, x, b, mirrored, arith.DivideBy(b.Rows / depthwiseRows), arith.DivideBy(x.Out)}).Shared = int(bytes)
	return true, kernels.CheckGrid(blocks)
}

// taps calls f for each output and tap of an axis with the element of images that they meet, -1 beyond the images.
func (a axisArgs) taps(f func(output, element, tap int64)) {
	for o := range a.Out {
		for i := range a.Size {
			e := o*a.Stride - a.Pad + i*a.Dilation
			if e >= a.In {
				e = -1
			}
			f(o, max(e, -1), i)
		}
	}
}

// outputs calls f for each element of images and tap of an axis that meet a place of outputs, with that place, -1 beyond the outputs.
func (a axisArgs) outputs(f func(output, element, tap int64)) {
	for e := range a.In {
		for i := range a.Size {
			n := e + a.Pad - i*a.Dilation
			if o := n / a.Stride; n%a.Stride == 0 {
				if o >= a.Out {
					o = -1
				}
				f(max(o, -1), e, i)
			}
		}
	}
}

// at returns an element of a plane, 0 beyond it, which times NaN is NaN.
func at[T kernels.Float](plane []T, row, column, columns int64) T {
	if row < 0 || column < 0 {
		return 0
	}
	return plane[row*columns+column]
}

func depthwiseBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[depthwiseArgs](c)
	images, filters, to := kernels.Slice[T](c, a.Images), kernels.Slice[T](c, a.Filters), kernels.Slice[T](c, a.Out)
	taps, in, outs := a.Y.Size*a.X.Size, a.Y.In*a.X.In, a.Y.Out*a.X.Out
	for p := range a.Planes {
		x, y, w := images[p*in:][:in], to[p*outs:][:outs], filters[p%a.Channels.D*taps:][:taps]
		clear(y)
		a.Y.taps(func(q, row, i int64) {
			a.X.taps(func(o, column, j int64) {
				tap := i*a.X.Size + j
				if a.Mirrored {
					tap = taps - 1 - tap
				}
				y[q*a.X.Out+o] += w[tap] * at(x, row, column, a.X.In)
			})
		})
	}
}

func depthwiseImagesBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[depthwiseImagesArgs](c)
	outputs, filters, to := kernels.Slice[T](c, a.Outputs), kernels.Slice[T](c, a.Filters), kernels.Slice[T](c, a.Out)
	taps, in, outs := a.Y.Size*a.X.Size, a.Y.In*a.X.In, a.Y.Out*a.X.Out
	for p := range a.Planes {
		y, x, w := outputs[p*outs:][:outs], to[p*in:][:in], filters[p%a.Channels.D*taps:][:taps]
		clear(x)
		a.Y.outputs(func(q, row, i int64) {
			a.X.outputs(func(o, column, j int64) { x[row*a.X.In+column] += w[i*a.X.Size+j] * at(y, q, o, a.X.Out) })
		})
	}
}

func depthwiseFiltersBody[T kernels.Float](c kernels.Call) {
	a := kernels.Args[depthwiseFiltersArgs](c)
	images, outputs, to := kernels.Slice[T](c, a.Images), kernels.Slice[T](c, a.Outputs), kernels.Slice[T](c, a.Out)
	taps, in, outs := a.Y.Size*a.X.Size, a.Y.In*a.X.In, a.Y.Out*a.X.Out
	clear(to[:kernels.CeilDiv(a.Count, a.Chunk)*a.Channels*taps])
	for p := range a.Count * a.Channels {
		x, y, w := images[p*in:][:in], outputs[p*outs:][:outs], to[(p/a.Channels/a.Chunk*a.Channels+p%a.Channels)*taps:][:taps]
		a.Y.taps(func(q, row, i int64) {
			a.X.taps(func(o, column, j int64) { w[i*a.X.Size+j] += y[q*a.X.Out+o] * at(x, row, column, a.X.In) })
		})
	}
}
