package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// prepare writes operands in the form, and the range of each in place of what each of its blocks would find.
func (f Form) prepare(c kernels.Call) {
	args := kernels.Args[convPrepareArgs](c)
	for i, x := range args.Planes[:c.Grid[1]] {
		all := bf16split.None
		from, n := kernels.Slice[float32](c, x.X), x.size(f)
		for at := range n {
			row, line, col, v := at%x.Pitch, at/x.Pitch/x.Wide, at/x.Pitch%x.Wide*x.StepX-x.Before, float32(0)
			each := x.Count / x.Groups
			group, image := line/x.Lines/each, line/x.Lines%each
			row -= line / x.Lines / x.Per % x.Blocks * x.Rows
			if row >= 0 && row < x.Rows && col >= 0 && col < x.Width && image < each-x.After {
				v = from[((image*x.Groups+group)*x.Rows+row)*x.Cols+line%x.Lines*x.StepY*x.Width+col]
			}
			all.Add(v)
			switch f {
			case BF16Split:
				matrices := bf16split.Split(v, 1, false)
				for q, v := range matrices {
					kernels.Slice[uint16](c, x.To)[int64(q)*n+at] = v
				}
			case BF16, F16:
				half, _ := f.half()
				kernels.Slice[uint16](c, x.To)[at] = expr.ToHalf(half, v)
			default:
				kernels.Slice[float32](c, x.To)[at] = v
			}
		}
		if f == BF16Split || args.Ranged {
			most, least := all.Packed()
			ranges := kernels.Slice[uint32](c, args.Ranges)[2*i*c.Grid[0]:]
			for block := range c.Grid[0] {
				ranges[2*block], ranges[2*block+1] = most, least
			}
		}
	}
}

// number returns the number that is stored at an element of an operand with splits n elements apart.
func (f Form) number(c kernels.Call, at kernels.Ref, i, n int64) float32 {
	switch f {
	case BF16Split:
		x := kernels.Slice[uint16](c, at)
		return bf16split.Float(x[i]) + (bf16split.Float(x[n+i]) + bf16split.Float(x[2*n+i]))
	case BF16, F16:
		half, _ := f.half()
		return expr.FromHalf(half, kernels.Slice[uint16](c, at)[i])
	}
	return kernels.TF32.Round(kernels.Slice[float32](c, at)[i])
}

// skips sets whether an operand of a split has to be scaled, and reports that. Where not, finite, too, if numbers are not finite.
func (a convTensorArgs) skips(c kernels.Call, f Form, finite bool) bool {
	if f != BF16Split && !a.Merged {
		return false
	}
	ranges := [2]bf16split.Magnitudes{bf16split.None, bf16split.None}
	for i, of := range a.Ranges {
		from := kernels.Slice[uint32](c, of.At)
		for block := range of.Blocks {
			ranges[i].Join(from[2*block], from[2*block+1])
		}
	}
	var scaled bool
	if f == BF16Split {
		s := scalingOf(ranges, [2]int{}, true, 0)
		scaled = s.lines >= 0 || (finite || a.Merged) && s.form != splitPlain
	} else {
		largest := math.Float32frombits(ranges[1].Most)
		scaled = !ranges[1].Finite || math.IsInf(float64(kernels.Precision(f).Round(largest)), 0)
	}
	kernels.Slice[int32](c, a.Fallback)[0] = arith.Flag(scaled)
	return scaled
}

// windows writes the windows of a row of outputs of an image of a group: columns of pixels, each a tap's channels after the other.
func (a convTensorArgs) windows(c kernels.Call, f Form, group, line int64, to []float32) {
	size, in, strides := f.stored().size, a.Pictures.Extents, a.Pictures.Strides
	terms, width := a.Taps*a.Channels, a.Width.D
	image, q := line*width/a.Pixels.D, line%(a.Pixels.D/width)
	clear(to)
	for i := range to {
		x, tap, channel := int64(i)/terms, int64(i)/a.Channels%a.Taps, int64(i)%a.Channels
		h, w := q*a.StrideY-a.PadY+tap/a.Columns*a.DilationY, x*a.StrideX-a.PadX+tap%a.Columns*a.DilationX
		if h >= 0 && h < in[2] && w >= 0 && w < in[1] {
			to[i] = f.number(c, a.Pictures.Ref, ((group*a.Group+image)*strides[2]+h*strides[1]+w*strides[0])/size+channel, a.Plane*strides[2]/size)
		}
	}
}

// convPixelsBody multiplies filters by windows, a row of pixels at a time.
func convPixelsBody(f Form) func(kernels.Call) {
	return func(c kernels.Call) { kernels.Args[convTensorArgs](c).outputs(c, f) }
}

func (a convTensorArgs) outputs(c kernels.Call, f Form) {
	if a.skips(c, f, false) {
		return
	}
	for group := range a.Groups {
		for y := range a.Phases[0].Count {
			for x := range a.Phases[1].Count {
				a.pixels(c, f, group, y, x)
			}
		}
	}
}

// pixels writes the results of a phase of a group.
func (a convTensorArgs) pixels(c kernels.Call, f Form, group, phaseY, phaseX int64) {
	high, wide, origin := a.Pixels.D, a.Pixels.D, int64(0)
	if a.Phases[0].Count*a.Phases[1].Count > 1 {
		tapsY, offsetY, firstY, atY, pixelsY := a.Phases[0].phase(phaseY)
		tapsX, offsetX, firstX, atX, pixelsX := a.Phases[1].phase(phaseX)
		a.First, a.Taps, a.Columns, a.PadY, a.PadX = firstY*a.First+firstX, tapsY*tapsX, tapsX, a.PadY-offsetY, a.PadX-offsetX
		high, wide, origin = pixelsY, pixelsX, atY*a.Row/a.Phases[0].Stride+atX*a.Column/a.Phases[1].Stride
	}
	terms, width := a.Taps*a.Channels, a.Width.D
	filters := align.Make[float32](a.M * terms)
	for i := range filters {
		m, tap, channel := group*a.M+int64(i)/terms, int64(i)/a.Channels%a.Taps, int64(i)%a.Channels
		tap = a.First + tap/a.Columns*a.Down + tap%a.Columns*a.Across
		strides := a.Filters.Strides
		filters[i] = f.number(c, a.Filters.Ref, (m*strides[1]+tap*strides[0])/f.stored().size+channel, strides[2]/f.stored().size)
	}
	kernels.Parallel(a.N/width, max(kernels.Grain/(width*terms*a.M), 1), func(lo, hi int64) {
		windows, product := align.Make[float32](width*terms), align.Make[float32](a.M*width)
		for line := lo; line < hi; line++ {
			a.windows(c, f, group, line, windows)
			gemm(c.BLAS(), false, true, a.M, width, terms, filters, terms, windows, terms, product)
			for i, v := range product {
				m, pixel := group*a.M+int64(i)/width, line*width+int64(i)%width
				image, rest := pixel/a.Pixels.D, pixel%a.Pixels.D
				if rest/width >= high || rest%width >= wide {
					continue
				}
				if at := image*a.Image + m*a.Filter + rest/width*a.Row + rest%width*a.Column + origin; a.How == convLast {
					if half, ok := f.half(); ok {
						kernels.Slice[uint16](c, a.Out)[at] = expr.ToHalf(half, v)
					} else {
						kernels.Slice[float32](c, a.Out)[at] = v
					}
				} else {
					to := kernels.Slice[float32](c, a.Out)[at:]
					if to[0] = v; a.How == convSpaced {
						to[1] = 0
					}
				}
			}
		}
	})
}

// convTapsBody adds up the products of gradients w.r.t. outputs and windows, a row of pixels at a time. All terms are in the first split.
func convTapsBody(f Form) func(kernels.Call) {
	return func(c kernels.Call) { kernels.Args[convTensorArgs](c).taps(c, f) }
}

func (a convTensorArgs) taps(c kernels.Call, f Form) {
	if a.skips(c, f, true) {
		return
	}
	terms, width, pixels, pitch := a.Taps*a.Channels, a.Width.D, a.Images*a.Pixels.D, a.Filters.Strides[0]/f.stored().size
	size := kernels.CeilDiv(pixels, a.Chunk) * a.Groups * a.M * a.N
	if a.How == convDirect {
		size = a.Groups * a.M * a.Down * a.Filter
	}
	to := kernels.Slice[float32](c, a.Out)[:size]
	clear(to)
	windows, product, gradients := align.Make[float32](width*terms), align.Make[float32](a.M*terms), align.Make[float32](width*a.M)
	for at := range a.Groups * (pixels / width) {
		group, line := at/(pixels/width), at%(pixels/width)
		a.windows(c, f, group, line, windows)
		for i := range gradients {
			gradients[i] = f.number(c, a.Filters.Ref, (group*a.Group*a.Pixels.D+line*width+int64(i)/a.M)*pitch+int64(i)%a.M, a.Plane*a.Pixels.D*pitch)
		}
		gemm(c.BLAS(), true, false, a.M, terms, width, gradients, a.M, windows, terms, product)
		for i, v := range product {
			m, tap, channel := group*a.M+int64(i)/terms, int64(i)/a.Channels%a.Taps, int64(i)%a.Channels
			if a.How != convDirect {
				to[m*a.N+tap*(a.N/a.Taps)+channel] += v
			} else if inner, of := channel/a.Across, channel%a.Across; of < a.Down {
				to[m*a.Down*a.Filter+of*a.Filter+tap*a.First+inner] += v
			}
		}
	}
}

// convSumBody adds up splits and brings the taps of a channel side by side.
func convSumBody(c kernels.Call) {
	a := kernels.Args[convSumArgs](c)
	if a.Guarded && kernels.Slice[int32](c, a.Fallback)[0] != 0 {
		return
	}
	sums, to := kernels.Slice[float32](c, a.Sums), kernels.Slice[float32](c, a.Out)
	for i := range a.M * a.Channels * a.Taps {
		tap, channel, m := i%a.Taps, i/a.Taps%a.Channels, i/a.Taps/a.Channels
		at := m*a.N + m/a.Per%a.Blocks*a.Channels + tap/a.Inner.D*(a.N/(a.Taps/a.Inner.D)) + tap%a.Inner.D*a.Pitch + channel
		to[i] = 0
		for split := range a.Splits {
			to[i] += sums[split*a.M*a.N+at]
		}
	}
}
