package gemm

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// ConvResult is what a [Conv] computes.
type ConvResult int

// ConvOutput is the convolution itself. The others are its gradients w.r.t. the images and the filters.
const (
	ConvOutput ConvResult = iota
	ConvImages
	ConvFilters
)

// String prints conv, or what the gradient is by.
func (r ConvResult) String() string {
	if r < ConvOutput || r > ConvFilters {
		return fmt.Sprintf("ConvResult(%d)", int(r))
	}
	return [...]string{"conv", "conv_images", "conv_filters"}[r]
}

// ConvAxis is one axis of a convolution. Element i of a filter at output o meets element o Stride - Before + i Dilation of the image, which is 0 outside.
type ConvAxis struct {
	In, Size, Stride, Dilation int64 // elements of the image and of a filter, and the distances of outputs and of a filter's elements
	Before, After              int64 // zeros around the image
}

// Out returns the number of outputs along the axis, which [ConvAxis.Check] accepts.
//
//go:noinline
func (a ConvAxis) Out() int64 { return (a.In+a.Before+a.After-a.reach())/max(a.Stride, 1) + 1 }

// reach returns the number of elements of the image from a filter's first to its last.
func (a ConvAxis) reach() int64 { return (a.Size-1)*a.Dilation + 1 }

// Check returns an error unless there are outputs, each with an element of the image.
func (a ConvAxis) Check() error {
	const most = 1 << 30
	for _, n := range []int64{a.In, a.Size, a.Stride, a.Dilation, a.Before + 1, a.After + 1} {
		if n < 1 || n > most {
			return fmt.Errorf("got %d elements, a filter of %d, stride %d, dilation %d and padding of %d and %d, want at least 1, 1, 1, 1, 0 and 0, and at most %d",
				a.In, a.Size, a.Stride, a.Dilation, a.Before, a.After, most)
		}
	}
	switch reach, all := a.reach(), a.In+a.Before+a.After; {
	case reach > all:
		return fmt.Errorf("got a filter over %d elements of %d with the padding, want at most these", reach, all)
	case max(a.Before, a.After) >= reach:
		return fmt.Errorf("got padding of %d and %d for a filter over %d elements, want less, since outputs would see padding alone", a.Before, a.After, reach)
	}
	return nil
}

// Conv plans a convolution of images (Images, Channels, Rows.In, Columns.In) with filters (Filters, Channels / Groups, Rows.Size, Columns.Size), whose outputs are
// (Images, Filters, Rows.Out(), Columns.Out()), or a gradient of it:
//
//	ConvOutput   y[b][f][p] = Σ over c, i of filters[f][c][i] images[b][g Channels / Groups + c][p Stride - Before + i Dilation], of images and filters
//	ConvImages   images[b][c][p] = Σ over f, i, q of y[b][f][q] filters[f][c][i] where q Stride - Before + i Dilation = p, of y and filters
//	ConvFilters  filters[f][c][i] = Σ over b, q of y[b][f][q] images[b][c][q Stride - Before + i Dilation], of images and y
//
// Filter f reads the channels of group g = f Groups / Filters alone. No matrix of windows is in memory. It is a kernels.Planner.
type Conv struct {
	Dtype                             kernels.Dtype // Float32 or Float64
	Images, Channels, Filters, Groups int64
	Rows, Columns                     ConvAxis
	Result                            ConvResult
	Round                             kernels.Precision // to what float32 operands may be rounded, on devices with kernels for it
	// ChannelsLast tells of ConvOutput and ConvImages whether they are stored as (Images, rows, columns, channels), where TakesChannelsLast permits it: in 16 bits, or in float32 if Round is TF32.
	ChannelsLast [2]bool
	// Split tells of both operands whether their splits, as a [ConvSplit] of Splits has them, are further operands, in the same order.
	Split [2]bool
	// Ranges, if not 0, say that the operand itself is its splits, which a generated kernel has stored with so many ranges, see [codegen.SplitChannelsLast]. Its Split is true.
	Ranges   [2]int64
	Prepared bool // the filters are as [PrepareFilters] writes them, see [Conv.Prepares]
}

// String prints the operation with its sizes.
func (v Conv) String() string {
	rounded := ""
	if v.Round != kernels.FullPrecision {
		rounded = fmt.Sprintf("[%v]", v.Round)
	}
	for i, split := range v.Split {
		if split {
			rounded += fmt.Sprintf("[operand %d split]", i)
		}
	}
	for of, last := range v.ChannelsLast {
		if last {
			rounded += fmt.Sprintf("[%s last]", [...]string{"outputs", "images"}[of])
		}
	}
	if v.Prepared {
		rounded += "[prepared]"
	}
	return fmt.Sprintf("%v_%v%s(%d images, %d channels, %d filters, %d groups, %+v, %+v)", v.Result, v.Dtype, rounded, v.Images, v.Channels, v.Filters, v.Groups, v.Rows, v.Columns)
}

func (v Conv) check(dev kernels.Device) error {
	const most = 1 << 30
	if !v.Dtype.IsFloat() {
		return fmt.Errorf("got elements of %v, want float32 or float64", v.Dtype)
	}
	for _, n := range []int64{v.Images, v.Channels, v.Filters, v.Groups} {
		if n < 1 || n > most {
			return fmt.Errorf("got %d images, %d channels, %d filters and %d groups, want 1 to %d of each", v.Images, v.Channels, v.Filters, v.Groups, most)
		}
	}
	if v.Result < ConvOutput || v.Result > ConvFilters {
		return fmt.Errorf("got %v, want ConvOutput, ConvImages or ConvFilters", v.Result)
	}
	if v.Channels%v.Groups != 0 || v.Filters%v.Groups != 0 {
		return fmt.Errorf("got %d channels, %d filters and %d groups, want channels and filters that the groups divide", v.Channels, v.Filters, v.Groups)
	}
	if dev.SMs < 1 {
		return fmt.Errorf("got a device of %d SMs, want 1 or more", dev.SMs)
	}
	for _, a := range []ConvAxis{v.Rows, v.Columns} {
		if err := a.Check(); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		name  string
		sizes []int64
	}{
		{"pixels of all images", []int64{v.Images, v.Rows.In, v.Columns.In}},
		{"outputs of a filter", []int64{v.Images, v.Rows.Out(), v.Columns.Out()}},
		{"elements of an image", []int64{v.Channels, v.Rows.In, v.Columns.In}},
		{"elements of an output", []int64{v.Filters, v.Rows.Out(), v.Columns.Out()}},
		{"elements of filters", []int64{v.Filters, v.Channels / v.Groups, v.Rows.Size, v.Columns.Size}},
	} {
		n := int64(1)
		for _, s := range x.sizes {
			if n *= s; n > most {
				return fmt.Errorf("got %d %s, want a product of at most %d", x.sizes, x.name, most)
			}
		}
	}
	if v.Split != [2]bool{} || v.Ranges != [2]int64{} {
		for i, x := range v.operandSplits(dev) {
			if v.Split[i] && x == (ConvSplit{}) {
				return fmt.Errorf("got splits of operand %d, want none: the launches read no splits of whole images", i)
			}
			if n := v.Ranges[i]; n < 0 || n > 0 && (!v.Split[i] || x.Rows%8 != 0) || n > codegen.MaxRanges {
				return fmt.Errorf("got %d ranges of operand %d, want none, or those that a generated kernel has stored with its splits", n, i)
			}
		}
	}
	if v.ChannelsLast != [2]bool{} && !v.TakesChannelsLast(dev) {
		return fmt.Errorf("got tensors with channels last, want a convolution that TakesChannelsLast accepts")
	}
	if v.Prepared && !v.takesPrepared(dev) {
		return fmt.Errorf("got prepared filters, want a convolution that Prepares them")
	}
	return nil
}

// Blocks of conv.cu.
const (
	convThreads    = 256
	convSide       = 16 // rows and columns of threads
	convStep       = 16 // terms of a step
	convAcross     = 4  // columns of a thread
	convSmallSide  = 8  // rows and columns of a block for few rows of filters
	convDirectRows = 8  // the most rows of a group for a thread an element
	convBlocks     = 2  // blocks wanted for each SM
	convMinTerms   = 32 // of a split, of blocks for few rows of filters of each thread
	convHostSplits = 16 // of rows of pixels, for the gradient by the filters
)

// convKernels has the kernels by form: of outputs and images, and of filters.
var windowKernels, filterKernels = [3][2]*kernels.Kernel{
	own.Pair("conv", "conv_windows_tiles", convWindowsBody[float32], convWindowsBody[float64]),
	own.Pair("conv", "conv_windows_strip", convWindowsBody[float32], convWindowsBody[float64]),
	own.Pair("conv", "conv_windows_direct", convWindowsBody[float32], convWindowsBody[float64]),
}, [3][2]*kernels.Kernel{
	own.Pair("conv", "conv_filters_tiles", convFiltersBody[float32], convFiltersBody[float64]),
	own.Pair("conv", "conv_filters_strip", convFiltersBody[float32], convFiltersBody[float64]),
	own.Pair("conv", "conv_filters_direct", convFiltersBody[float32], convFiltersBody[float64]),
}

// convOperands has the inputs by result: what is gathered, and the matrix.
var convOperands = [3][2]ConvResult{{ConvImages, ConvFilters}, {ConvOutput, ConvFilters}, {ConvImages, ConvOutput}}

// along is conv.cu's Along: how pixels and taps of one axis meet elements of the operand that is gathered.
type along struct {
	Images, Pixels, Filter, Stride, Step, Pad, Phases, Every, Dilation int64 `arg:"int32"`
}

// phase returns the first tap that meets the pixels of a phase, and the element that it and the first pixel meet; ok is false if no tap meets them.
func (a along) phase(at int64) (first, base int64, ok bool) {
	if a.Phases == 1 && a.Every == 1 && a.Step > 0 {
		return 0, -a.Pad, true
	}
	for (at+a.Pad-first*a.Dilation)%a.Phases != 0 {
		if first++; first == a.Every {
			return 0, 0, false
		}
	}
	return first, (at + a.Pad - first*a.Dilation) / a.Phases, first < a.Filter
}

// pixelsOf and tapsOf return the most pixels and taps of a phase.
func (a along) pixelsOf() int64 { return kernels.CeilDiv(a.Pixels, a.Phases) }
func (a along) tapsOf() int64   { return kernels.CeilDiv(a.Filter, a.Every) }

// rowsOf has the elements between groups and rows of an operand.
type rowsOf struct {
	Group, Row int64 `arg:"int32"`
}

// gathered is conv.cu's Gathered: the operand that is read from images, and where pixels and taps are in the others.
type gathered struct {
	Image                          int64
	Group, Plane, Width            int64 `arg:"int32"`
	Rows, Columns                  along
	Pixels, PixelRow, Taps, TapRow arith.Divide
	OuterPixel                     int64
	WidthPixel, OuterTap, WidthTap int64 `arg:"int32"`
}

// convArgs are the arguments of all kernels: M rows of a matrix meet N columns of K terms, in each group.
type convArgs struct {
	Images, Matrix, Out    kernels.Ref
	M, N, K, Chunk, Groups int64 `arg:"int32"`
	Count                  int64 // elements of the result
	A, C                   rowsOf
	gathered
	When    kernels.Ref // an int32, of a guarded launch, which computes something only if it is not 0
	Guarded bool
}

// Plan returns the launches.
func (v Conv) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if err := v.check(dev); err != nil {
		return nil, fmt.Errorf("kernels: %v: %w", v, err)
	}
	m := v.choose(dev)
	if m.emit == nil {
		return nil, fmt.Errorf("kernels: %v: no kernel for %s computes it in launches of at most %d blocks and images of at most as many elements", v, dev.Name, math.MaxInt32)
	}
	return v.planBy(m)
}

// planBy returns the launches of a method.
func (v Conv) planBy(m convMethod) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: v.String()}
	args, sizes := v.arguments(), v.elements()
	terms := args.K * sizes[v.Result]
	if v.Result == ConvImages { // a quarter of the terms is there at stride 2
		terms = args.M * v.Filters * v.Images * v.Rows.Out() * v.Columns.Out() * v.Rows.Size * v.Columns.Size
	}
	p.Flops = 2 * terms
	for _, operand := range convOperands[v.Result] {
		p.Inputs = append(p.Inputs, sizes[operand]*v.size(operand))
	}
	for i, of := range convOperands[v.Result] {
		if x := v.split(of); v.further(i) {
			p.Inputs = append(p.Inputs, x.Bytes())
		} else if v.Ranges[i] > 0 {
			p.Inputs[i] = codegen.SplitBytes(x.Count * x.Rows * x.Cols)
		}
	}
	if v.Prepared {
		p.Inputs[1] = v.prepares().Bytes()
	}
	p.Out = args.Count * v.size(v.Result)
	return p.Or(m.emit(p, args))
}

// last reports whether a tensor has channels last, and size returns the bytes of its elements.
func (v Conv) last(of ConvResult) bool { return of != ConvFilters && v.ChannelsLast[of] }
func (v Conv) size(of ConvResult) int64 {
	if v.last(of) {
		return Form(v.Round).stored().size
	}
	return v.Dtype.Size()
}

// convForm is a form of the kernels of conv.cu: tiles, strips of 16 rows, or the direct one of few rows.
type convForm int

const (
	formTiles convForm = iota
	formStrips
	formDirect
	convForms
)

// blocks returns the blocks of a split in a form, and the unit of its terms; ok is false if the form does not compute the convolution.
func (v Conv) blocks(form convForm, a convArgs) (blocks, unit int64, ok bool) {
	phases := a.Groups * a.Rows.Phases * a.Columns.Phases
	switch {
	case form == formTiles:
		return phases * kernels.CeilDiv(a.M, 4*convSide) * kernels.CeilDiv(a.N, convAcross*convSide), convStep, true
	case form == formStrips:
		return phases * kernels.CeilDiv(a.M, convSide) * kernels.CeilDiv(a.N, convAcross*convSide), convStep, true
	case v.Result == ConvFilters:
		return phases * kernels.CeilDiv(a.M, convSmallSide) * kernels.CeilDiv(a.N, convSmallSide), convThreads, true
	}
	return phases * a.M * kernels.CeilDiv(a.N, convThreads), a.K, a.M <= convDirectRows
}

// launch appends the launches in the element type's unit, in the form that takes the least time by the model.
func (v Conv) launch(p *kernels.Plan, dev kernels.Device, args convArgs) error {
	best := formTiles
	if dev.Kind == kernels.GPU {
		for form := range convForms {
			if v.formTime(form, dev, args) < v.formTime(best, dev, args) {
				best = form
			}
		}
	}
	return v.launchForm(best, p, dev, args)
}

// launchForm appends the launches in a form.
func (v Conv) launchForm(form convForm, p *kernels.Plan, dev kernels.Device, args convArgs) error {
	list := windowKernels
	if v.Result == ConvFilters {
		list = filterKernels
	}
	blocks, unit, _ := v.blocks(form, args)
	splits := int64(1)
	if !args.Guarded {
		splits = v.splits(dev, args, blocks, unit)
	}
	if dev.Kind == kernels.CPU {
		unit = args.PixelRow.D // whole rows of pixels
	}
	args.Chunk = arith.RoundUp(kernels.CeilDiv(args.K, splits), unit)
	splits = kernels.CeilDiv(args.K, args.Chunk)
	if err := kernels.CheckGrid(blocks * splits); err != nil {
		return err
	}
	if splits > 1 {
		args.Out = p.Workspace(splits * p.Out)
	}
	l := p.Launch(list[form][v.Dtype], int(blocks*splits), convThreads, args)
	if dev.Kind == kernels.CPU {
		keepsMemory(l, v.Dtype, v.Result)
	}
	sumSplits(p, v.Dtype, args.Count, args.Out, splits)
	return nil
}

// sumSplits appends the launch that adds up splits of a result of so many elements, unless there is one.
func sumSplits(p *kernels.Plan, dt kernels.Dtype, elements int64, from kernels.Ref, splits int64) {
	if splits > 1 {
		(&problem{Product: Product{Dtype: dt, Batch: 1, M: 1, N: elements}, c: out}).combine(p, from, splits)
	}
}

// filterEach reports whether each channel has a filter of its own, depthwiseGroups whether there are several.
func (v Conv) filterEach() bool      { return v.Groups == v.Channels && v.Groups == v.Filters }
func (v Conv) depthwiseGroups() bool { return v.Groups > 1 && v.filterEach() }

// splits returns the number of splits of the terms, for a launch with that many blocks a split.
func (v Conv) splits(dev kernels.Device, args convArgs, blocks, unit int64) int64 {
	if dev.Kind == kernels.CPU {
		if v.Result == ConvFilters {
			return max(min(args.K/convHostPixels, convHostSplits), 1)
		}
		return 1
	}
	return max(min(kernels.CeilDiv(convBlocks*int64(dev.SMs), blocks), args.K/(convMinTerms/convStep*unit)), 1)
}

// elements returns the elements of outputs, images and filters, by ConvResult.
func (v Conv) elements() [3]int64 {
	return [3]int64{
		v.Images * v.Filters * v.Rows.Out() * v.Columns.Out(),
		v.Images * v.Channels * v.Rows.In * v.Columns.In,
		v.Filters * v.Channels / v.Groups * v.Rows.Size * v.Columns.Size,
	}
}

// arguments returns the arguments without splits.
func (v Conv) arguments() convArgs {
	channels, filters := v.Channels/v.Groups, v.Filters/v.Groups
	window, plane, outs := v.Rows.Size*v.Columns.Size, v.Rows.In*v.Columns.In, v.Rows.Out()*v.Columns.Out()
	a := convArgs{Images: kernels.In(0), Matrix: kernels.In(1), Out: out, Groups: v.Groups, Count: v.elements()[v.Result], When: out}
	images, outputs, taps := rowsOf{channels * plane, plane}, rowsOf{filters * outs, outs}, rowsOf{filters * channels * window, channels * window}
	a.gathered = gathered{Image: v.Channels * plane, Group: images.Group, Plane: plane, Width: v.Columns.In, Rows: v.Rows.outputs(), Columns: v.Columns.outputs(),
		OuterPixel: v.Filters * outs, WidthPixel: v.Columns.Out(), OuterTap: window, WidthTap: v.Columns.Size}
	switch v.Result {
	case ConvOutput:
		a.M, a.A, a.C = filters, taps, outputs
	case ConvImages:
		a.M, a.A, a.C = channels, rowsOf{taps.Group, window}, images
		a.gathered = gathered{Image: v.Filters * outs, Group: outputs.Group, Plane: outs, Width: v.Columns.Out(), Rows: v.Rows.images(), Columns: v.Columns.images(),
			OuterPixel: v.Channels * plane, WidthPixel: v.Columns.In, OuterTap: channels * window, WidthTap: v.Columns.Size}
	case ConvFilters:
		a.M, a.A, a.C = filters, outputs, taps
	}
	pixelRow, tapRow := a.Columns.pixelsOf(), a.Columns.tapsOf()
	pixels, tapsOf := a.Rows.pixelsOf()*pixelRow, a.Rows.tapsOf()*tapRow
	a.Pixels, a.PixelRow, a.Taps, a.TapRow = arith.DivideBy(pixels), arith.DivideBy(pixelRow), arith.DivideBy(tapsOf), arith.DivideBy(tapRow)
	a.N, a.K = v.Images*pixels, channels*tapsOf
	switch v.Result {
	case ConvImages:
		a.K = filters * tapsOf
	case ConvFilters:
		a.N, a.K = a.K, a.N
	}
	return a
}

// outputs returns how outputs and taps meet elements of the images, and images how these and taps meet outputs.
func (a ConvAxis) outputs() along {
	return along{a.In, a.Out(), a.Size, a.Stride, a.Dilation, a.Before, 1, 1, a.Dilation}
}

func (a ConvAxis) images() along {
	common := gcd(a.Stride, a.Dilation)
	return along{a.Out(), a.In, a.Size, 1, -a.Dilation / common, a.Before, a.Stride, a.Stride / common, a.Dilation}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
