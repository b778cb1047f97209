package gemm

import (
	"math"

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
	depthwiseBytes  = 24 << 10  // of shared memory that a block should have: 8 blocks share an SM
	depthwiseMax    = 160 << 10 // that it may have, where a device has so much
	depthwiseBlocks = 8         // of an SM, wanted
	depthwiseRows   = 4         // results of a thread, one below the other

	depthwiseFilterBlocks = 4 // of an SM, for filters, at most
)

// The model's constants for filters: us of a block and of a band beside its bytes, and the bytes that an SM copies and multiplies in one.
const depthwiseBlock, depthwiseBand, depthwiseRate = 1, 1.2, 20e3

// axisArgs is windows.cuh's Axis, and bandArgs conv_depthwise.cu's Band.
type axisArgs struct {
	In, Out, Size, Stride, Dilation, Pad int64 `arg:"int32"`
}
type bandArgs struct {
	Each, Rows, High, Wide int64 `arg:"int32"` // planes and rows of results, and high rows of wide elements that they meet
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
	Outputs, Filters, Out        kernels.Ref
	Planes                       int64 `arg:"int32"`
	Channels                     arith.Divide
	Y, X                         axisArgs
	Band                         bandArgs
	StrideY, StrideX             arith.Divide
	EveryY, StepY, EveryX, StepX int64 `arg:"int32"`
	Strips, Across               arith.Divide
}

type depthwiseFiltersArgs struct {
	Images, Outputs, Out         kernels.Ref
	Count, Channels, Chunk, Side int64 `arg:"int32"`
	Y, X                         axisArgs
	Band, Own                    bandArgs
	Taps                         int64 `arg:"int32"`
	AcrossX, AcrossY, AcrossP    int64 `arg:"int32"`
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

// band returns the planes and the rows of a block, and its bytes of shared memory. The rows are a multiple of unit. A block has at most depthwiseBytes if unit rows fit, and planes are divided
// until there are about `blocks` blocks. own tells that a block has the results in shared memory, too.
func (v Conv) band(y, x axisArgs, planes, blocks, unit int64, images, own bool) (b bandArgs, bytes int64) {
	rows, columns := y.Out, x.Out
	if images {
		rows, columns = y.In, x.In
	}
	wide, each := x.met(columns, images), arith.RoundUp(rows, unit)
	size := func(each int64) int64 {
		n := y.met(each, images) * wide
		if own {
			n += each * columns
		}
		return n * v.Dtype.Size()
	}
	for each > unit && (size(each) > depthwiseBytes || 2*planes*kernels.CeilDiv(rows, each) < blocks) {
		each = arith.RoundUp(each/2, unit)
	}
	count := int64(1) // whole planes
	if each >= rows {
		count = max(min(depthwiseBytes/size(each), planes/blocks), 1)
	}
	return bandArgs{count, each, y.met(each, images), wide}, count * size(each)
}

// depthwise appends the launches for channels of a filter each; ok is false for other convolutions and those of which a block has no room for a few rows.
func (v Conv) depthwise(p *kernels.Plan, dev kernels.Device) (ok bool, err error) {
	if !v.filterEach() || dev.Kind == kernels.CPU {
		return false, nil
	}
	if v.Result == ConvFilters {
		return v.depthwiseFilters(p, dev)
	}
	if v.Rows.In == 1 && v.Rows.Size == 1 { // a thread has results one below the other
		v.Rows, v.Columns = v.Columns, v.Rows
	}
	y, x, planes, blocks, unit := v.Rows.args(), v.Columns.args(), v.Images*v.Channels, depthwiseBlocks*int64(dev.SMs), int64(depthwiseRows)
	kernel, images := depthwiseKernels[v.Result][v.Dtype], v.Result == ConvImages
	mirrored := images && v.Rows.Stride == 1 && v.Columns.Stride == 1
	if mirrored {
		y, x, kernel, images = v.Rows.mirrored(), v.Columns.mirrored(), depthwiseKernels[ConvOutput][v.Dtype], false
	}
	if images {
		unit *= y.Stride
	}
	b, bytes := v.band(y, x, planes, blocks, unit, images, false)
	if bytes += b.Each * y.Size * x.Size * v.Dtype.Size(); bytes > min(depthwiseMax, int64(dev.SharedOptin)) {
		return false, nil
	}
	rows, strips := y.Out, arith.DivideBy(b.Rows/depthwiseRows)
	if images {
		rows = y.In
	}
	grid := kernels.CeilDiv(planes, b.Each) * kernels.CeilDiv(rows, b.Rows)
	var args any = depthwiseArgs{kernels.In(0), kernels.In(1), out, planes, arith.DivideBy(v.Channels), y, x, b, mirrored, strips, arith.DivideBy(x.Out)}
	if images {
		down, over := gcd(y.Stride, y.Dilation), gcd(x.Stride, x.Dilation)
		args = depthwiseImagesArgs{kernels.In(0), kernels.In(1), out, planes, arith.DivideBy(v.Channels), y, x, b, arith.DivideBy(y.Stride), arith.DivideBy(x.Stride),
			y.Stride / down, y.Dilation / down, x.Stride / over, x.Dilation / over, strips, arith.DivideBy(x.In)}
	}
	p.Launch(kernel, int(grid), convThreads, args).Shared = int(bytes)
	return true, kernels.CheckGrid(grid)
}

// depthwiseFilters appends the launches of the gradient w.r.t. filters, which take the least time by the model of as many blocks as fill the SMs or fewer.
func (v Conv) depthwiseFilters(p *kernels.Plan, dev kernels.Device) (ok bool, err error) {
	var a depthwiseFiltersArgs
	var bytes int64
	us := math.Inf(1)
	for perSM := int64(1); perSM <= depthwiseBlocks; perSM *= 2 {
		if b, n, time := v.depthwiseSplits(perSM*int64(dev.SMs), int64(dev.SMs)); n <= min(depthwiseMax, int64(dev.SharedOptin)) && b.Taps <= convThreads && time < us {
			a, bytes, us = b, n, time
		}
	}
	if math.IsInf(us, 1) {
		return false, nil
	}
	splits := kernels.CeilDiv(a.bands(), a.Chunk)
	if splits > 1 {
		a.Out = p.Workspace(splits * p.Out)
	}
	p.Launch(depthwiseKernels[ConvFilters][v.Dtype], int(splits*v.Channels), convThreads, a).Shared = int(bytes)
	sumSplits(p, v.Dtype, p.Out/v.Dtype.Size(), a.Out, splits)
	return true, kernels.CheckGrid(splits * v.Channels)
}

// depthwiseSplits returns the arguments for about so many blocks, a block's bytes of shared memory, and the time by the model.
func (v Conv) depthwiseSplits(blocks, sms int64) (a depthwiseFiltersArgs, bytes int64, us float64) {
	y, x, size := v.Rows.args(), v.Columns.args(), v.Dtype.Size()
	b, bytes := v.band(y, x, v.Images*v.Channels, blocks, 1, false, true)
	bytes = bytes / b.Each * min(b.Each, v.Images)
	b.Each = min(b.Each, v.Images)
	side := int64(1) // taps of a thread: it reads an element of the outputs for all of them, and one of the images for each
	for _, n := range []int64{3, 5} {
		if x.Dilation == 1 && kernels.CeilDiv(x.Size, n)*(n+1) < kernels.CeilDiv(x.Size, side)*(side+1) {
			side = n
		}
	}
	a = depthwiseFiltersArgs{Images: kernels.In(0), Outputs: kernels.In(1), Out: out, Count: v.Images, Channels: v.Channels, Side: side, Y: y, X: x, Band: b, Own: bandArgs{b.Each, b.Rows, b.Rows, x.Out}, Taps: y.Size * kernels.CeilDiv(x.Size, side)}
	threads := max(convThreads/a.Taps, 1) // for each part of a filter
	a.AcrossX = min(threads, x.Out)
	a.AcrossX = kernels.CeilDiv(x.Out, kernels.CeilDiv(x.Out, a.AcrossX)) // no more than the turns need
	a.AcrossY = min(threads/a.AcrossX, b.Rows)
	a.AcrossP = min(threads/a.AcrossX/a.AcrossY, b.Each)
	bands := a.bands()
	a.Chunk = kernels.CeilDiv(bands, min(kernels.CeilDiv(blocks, v.Channels), bands))
	blocks = kernels.CeilDiv(bands, a.Chunk) * v.Channels
	resident := min(kernels.CeilDiv(blocks, sms), depthwiseFilterBlocks)
	us = convLaunch + float64(kernels.CeilDiv(blocks, sms*depthwiseFilterBlocks))*(depthwiseBlock+float64(a.Chunk)*(depthwiseBand+float64(bytes*resident)/depthwiseRate))
	if blocks > v.Channels {
		us += convLaunch
	}
	return a, max(bytes+side*size, a.AcrossX*a.AcrossY*a.AcrossP*y.Size*x.Size*size), us
}

// bands returns the bands of all images.
func (a depthwiseFiltersArgs) bands() int64 {
	return kernels.CeilDiv(a.Count, a.Band.Each) * kernels.CeilDiv(a.Y.Out, a.Band.Rows)
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
	each, rows := a.Band.Each, a.Band.Rows
	high := kernels.CeilDiv(a.Y.Out, rows) // bands of an image
	clear(to[:kernels.CeilDiv(kernels.CeilDiv(a.Count, each)*high, a.Chunk)*a.Channels*taps])
	for p := range a.Count * a.Channels {
		x, y := images[p*in:][:in], outputs[p*outs:][:outs]
		a.Y.taps(func(q, row, i int64) {
			split := (p/a.Channels/each*high + q/rows) / a.Chunk
			w := to[(split*a.Channels+p%a.Channels)*taps:][:taps]
			a.X.taps(func(o, column, j int64) { w[i*a.X.Size+j] += y[q*a.X.Out+o] * at(x, row, column, a.X.In) })
		})
	}
}
