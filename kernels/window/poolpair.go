package window

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// MaxPooling plans the maximum of each window of Images x Channels planes as [MaxPool] does or, with Gradient, its gradient w.r.t. the images as [MaxPoolDiff] does.
//
//	y = max of each window of x, or of ReLU(x)    dx = gradient w.r.t. x, of x and dy
//
// Inputs are x and, with Gradient, dy. Takes reports which of the further fields a device has kernels for.
type MaxPooling struct {
	Dtype            kernels.Dtype // Float32 or Float64
	Images, Channels int64
	Windows          Windows
	Gradient         bool
	ReLU             bool             // of x: -0 for negative elements
	ChannelsLast     [2]bool          // by PoolImages and PoolOutputs: stored as (Images, rows, columns, Channels)
	Stored           [2]kernels.Dtype // by PoolImages and PoolOutputs: BF16 or F16 for those that are stored in it in place of float32
}

// Indices of [MaxPooling].ChannelsLast and Stored.
const (
	PoolImages  = iota // x and dx
	PoolOutputs        // y and dy
)

// String prints the operation with the size of its windows.
func (p MaxPooling) String() string {
	name := "max-pool"
	if p.Gradient {
		name += " derivative"
	}
	if p.ReLU {
		name += " of relu"
	}
	for of, what := range []string{"images", "outputs"} {
		if p.Stored[of] != kernels.Float32 {
			name += fmt.Sprintf(", %s %v", what, p.Stored[of])
		}
		if p.ChannelsLast[of] {
			name += fmt.Sprintf(", %s last", what)
		}
	}
	return fmt.Sprintf("%s[%dx%d]", name, p.Windows.Rows.Size, p.Windows.Columns.Size)
}

// Takes reports whether a device has kernels for the operation: for windows of 2 x 2 elements, 2 apart, without padding, in float32 with any of the further fields. Images in 16 bits have their
// channels last, a multiple of 4 of them. Outputs have their channels last, or are stored in 16 bits, only where the images are.
func (p MaxPooling) Takes(dev kernels.Device) bool {
	if _, err := newPool("maxpool", kernels.Float32, 1, p.Windows); err != nil || p.Images < 1 || p.Channels < 1 || !p.Dtype.IsFloat() {
		return false
	}
	return p.plain() || p.pairs(dev)
}

// pairs reports whether kernels of poolpair.cu compute the operation.
func (p MaxPooling) pairs(dev kernels.Device) bool {
	w, last, stored := p.Windows, p.ChannelsLast, p.Stored
	half := stored[PoolImages] == expr.BF16 || stored[PoolImages] == expr.F16
	switch padding := w.Rows.Before + w.Rows.After + w.Columns.Before + w.Columns.After; {
	case p.Images < 1 || p.Channels < 1, poolVariant(w) != 0 || padding > 0, p.Dtype != kernels.Float32,
		stored[PoolImages] != kernels.Float32 && !half, stored[PoolOutputs] != kernels.Float32 && stored[PoolOutputs] != stored[PoolImages],
		(half || last[PoolOutputs]) && !last[PoolImages], last[PoolImages] && p.Channels%pairChunk > 0, half && dev.Kind != kernels.CPU && dev.Major < 8:
		return false
	}
	most := poolMost / (w.plane() + int64(w.Rows.In+w.Columns.In) + 1) // windows, with those partly inside, are fewer than elements
	return p.Images <= most && p.Channels <= most/p.Images
}

// plain reports whether the operation is that of MaxPool or MaxPoolDiff.
func (p MaxPooling) plain() bool {
	return !p.ReLU && p.ChannelsLast == [2]bool{} && p.Stored == [2]kernels.Dtype{}
}

// pairArgs are the arguments of poolpair.cu.
type pairArgs struct {
	Total, Rows, Columns, Channels int64 `arg:"int32"`
	ReLU, Last                     int32
	Types                          [2]int32 // of images and outputs, indices of pairTypes
	Chunks, Down, Across           arith.Divide
}

type pairMaxArgs struct {
	In, Out kernels.Ref
	pairArgs
}

type pairDiffArgs struct {
	In, Grad, Out kernels.Ref
	pairArgs
}

// Constants of poolpair.cu.
const (
	pairRounds = 2 // windows of a thread, of planes
	pairChunk  = 4 // channels of a thread, of images with their channels last
)

var pairTypes = []kernels.Dtype{kernels.Float32, expr.BF16, expr.F16}

var (
	pairMax      = own.Kernel("poolpair", "poolpair_max_f32", pairMaxBody)
	pairDiff     = own.Kernel("poolpair", "poolpair_max_diff_f32", pairDiffBody)
	pairMaxLast  = own.Kernel("poolpair", "poolpair_max_last", pairMaxBody)
	pairDiffLast = own.Kernel("poolpair", "poolpair_max_diff_last", pairDiffBody)
)

// Plan plans the operation. It returns an error for what Takes does not report.
func (p MaxPooling) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if p.plain() {
		if p.Gradient {
			return MaxPoolDiff(dev, p.Dtype, p.Images*p.Channels, p.Windows)
		}
		return MaxPool(dev, p.Dtype, p.Images*p.Channels, p.Windows)
	}
	plan := &kernels.Plan{Op: fmt.Sprintf("%v of %v(%d images, %d channels, %+v)", p, p.Dtype, p.Images, p.Channels, p.Windows)}
	if !p.Takes(dev) {
		return nil, fmt.Errorf("%s: no kernel, want what Takes reports", plan.Op)
	}
	planes, w := p.Images*p.Channels, p.Windows
	x, y := planes*w.plane()*p.Stored[PoolImages].Size(), planes*w.out()*p.Stored[PoolOutputs].Size()
	plan.Inputs, plan.Out, plan.Flops = []int64{x}, y, planes*w.out()*w.elements()
	if p.Gradient {
		plan.Inputs, plan.Out = []int64{x, y}, x
	}
	return p.plan(plan), nil
}

// plan appends the launch to a plan.
func (p MaxPooling) plan(plan *kernels.Plan) *kernels.Plan {
	w, planes := p.Windows, p.Images*p.Channels
	down, across := int64(w.Rows.Out()), int64(w.Columns.Out())
	if p.Gradient {
		down, across = kernels.CeilDiv(int64(w.Rows.In), 2), kernels.CeilDiv(int64(w.Columns.In), 2)
	}
	args, threads, last := pairArgs{Rows: int64(w.Rows.In), Columns: int64(w.Columns.In), Channels: 1, ReLU: arith.Flag(p.ReLU), Last: arith.Flag(p.ChannelsLast[PoolOutputs]),
		Chunks: arith.DivideBy(1), Down: arith.DivideBy(down), Across: arith.DivideBy(across)}, planes*down*across, p.ChannelsLast[PoolImages]
	largest, diff := pairMax, pairDiff
	rounds := int64(pairRounds)
	if last {
		args.Channels, args.Chunks = p.Channels, arith.DivideBy(p.Channels/pairChunk)
		threads, rounds = threads/pairChunk, 1
		largest, diff = pairMaxLast, pairDiffLast
	}
	args.Total = threads
	for of, d := range p.Stored {
		args.Types[of] = int32(slices.Index(pairTypes, d))
	}
	blocks := int(kernels.CeilDiv(threads, poolThreads*rounds))
	if p.Gradient {
		plan.Launch(diff, blocks, poolThreads, pairDiffArgs{kernels.In(0), kernels.In(1), kernels.At(kernels.Out, 0), args})
	} else {
		plan.Launch(largest, blocks, poolThreads, pairMaxArgs{kernels.In(0), kernels.At(kernels.Out, 0), args})
	}
	return plan
}

// each calls f for each row of windows of each image, one of planes if they are not stored with their channels last.
func (a pairArgs) each(f func(image, row int64)) {
	rows := a.Down.D
	images := a.Total / (a.Chunks.D * rows * a.Across.D)
	kernels.Parallel(images*rows, max(kernels.Grain/(a.Across.D*a.Channels), 1), func(lo, hi int64) {
		for n := lo; n < hi; n++ {
			f(n/rows, n%rows)
		}
	})
}

// windows calls f for each whole or partial window of a row of windows, with the indices of its elements, -1 for none, and of its output, -1 for a partial window.
func (a pairArgs) windows(image, row int64, f func(x [4]int64, y int64)) {
	down, across := a.Rows/2, a.Columns/2
	for column := range a.Across.D {
		for channel := range a.Channels {
			x, y := [4]int64{}, (image*a.Channels+channel)*down*across+row*across+column
			if a.Last == 1 {
				y = ((image*down+row)*across+column)*a.Channels + channel
			}
			for i := range x {
				r, c := 2*row+int64(i/2), 2*column+int64(i%2)
				if x[i] = ((image*a.Rows+r)*a.Columns+c)*a.Channels + channel; r >= a.Rows || c >= a.Columns {
					x[i], y = -1, -1
				}
			}
			f(x, y)
		}
	}
}

// largest returns the maximum of a window, and which element is the first that has it, -1 for none.
func (a pairArgs) largest(e0, e1, e2, e3 float32) (most float32, at int) {
	if a.ReLU == 1 {
		e0, e1, e2, e3 = activated(e0), activated(e1), activated(e2), activated(e3)
	}
	most, at = least[float32](), -1
	if e0 > most {
		most, at = e0, 0
	}
	if e1 > most {
		most, at = e1, 1
	}
	if e2 > most {
		most, at = e2, 2
	}
	if e3 > most {
		most, at = e3, 3
	}
	return most, at
}

// activated returns the ReLU of x, which is -0 for negative x.
func activated(x float32) float32 {
	if x < 0 {
		return negativeZero
	}
	return x + 0
}

// planes reports whether images are planes of float32, and rows returns the two rows of a row of windows, the second of which may be none.
func (a pairArgs) planes() bool { return a.Channels == 1 && a.Types == [2]int32{} }

func (a pairArgs) rows(x []float32, plane, row int64) (top, bottom []float32) {
	top = x[(plane*a.Rows+2*row)*a.Columns:]
	if 2*row+1 < a.Rows {
		bottom = top[a.Columns:][:a.Columns]
	}
	return top[:a.Columns], bottom
}

var negativeZero = float32(math.Copysign(0, -1))

func pairMaxBody(c kernels.Call) {
	a := kernels.Args[pairMaxArgs](c)
	x, y := newNumbers(c, a.Types[PoolImages], a.In), newNumbers(c, a.Types[PoolOutputs], a.Out)
	if a.planes() {
		a.each(func(plane, row int64) {
			top, bottom := a.rows(x.wide, plane, row)
			to := y.wide[(plane*a.Down.D+row)*a.Across.D:][:a.Across.D]
			for i := range to {
				to[i], _ = a.largest(top[2*i], top[2*i+1], bottom[2*i], bottom[2*i+1])
			}
		})
		return
	}
	a.each(func(image, row int64) {
		a.windows(image, row, func(at [4]int64, to int64) {
			most, _ := a.largest(x.get(at[0]), x.get(at[1]), x.get(at[2]), x.get(at[3]))
			y.set(to, most)
		})
	})
}

func pairDiffBody(c kernels.Call) {
	a := kernels.Args[pairDiffArgs](c)
	x, dy, dx := newNumbers(c, a.Types[PoolImages], a.In), newNumbers(c, a.Types[PoolOutputs], a.Grad), newNumbers(c, a.Types[PoolImages], a.Out)
	if a.planes() {
		down, across := a.Rows/2, a.Columns/2
		a.each(func(plane, row int64) {
			top, bottom := a.rows(x.wide, plane, row)
			to, below := a.rows(dx.wide, plane, row)
			clear(to)
			clear(below)
			if row == down {
				return
			}
			for i, d := range dy.wide[(plane*down+row)*across:][:across] {
				v := [4]float32{top[2*i], top[2*i+1], bottom[2*i], bottom[2*i+1]}
				_, at := a.largest(v[0], v[1], v[2], v[3])
				if at < 0 {
					continue
				}
				if d += 0; a.ReLU == 1 && !(v[at] >= 0) {
					d *= 0
				}
				if at < 2 {
					to[2*i+at] = d
				} else {
					below[2*i+at-2] = d
				}
			}
		})
		return
	}
	a.each(func(image, row int64) {
		a.windows(image, row, func(at [4]int64, from int64) {
			v, first := [4]float32{}, -1
			for i, k := range at {
				if k >= 0 {
					v[i] = x.get(k)
				}
			}
			if from >= 0 {
				_, first = a.largest(v[0], v[1], v[2], v[3])
			}
			for i, k := range at {
				slope := float32(0)
				if i == first {
					slope += dy.get(from)
				}
				if a.ReLU == 1 {
					slope *= float32(arith.Flag(v[i] >= 0))
				}
				if k >= 0 {
					dx.set(k, slope)
				}
			}
		})
	})
}

// numbers are elements of float32, or of 16 bits.
type numbers struct {
	dtype kernels.Dtype
	wide  []float32
	half  []uint16
}

func newNumbers(c kernels.Call, of int32, at kernels.Ref) numbers {
	d := pairTypes[of]
	if d == kernels.Float32 {
		return numbers{d, kernels.Slice[float32](c, at), nil}
	}
	return numbers{d, nil, kernels.Slice[uint16](c, at)}
}

func (x numbers) get(i int64) float32 {
	if x.half != nil {
		return expr.FromHalf(x.dtype, x.half[i])
	}
	return x.wide[i]
}

func (x numbers) set(i int64, v float32) {
	if x.half != nil {
		x.half[i] = expr.ToHalf(x.dtype, v)
	} else {
		x.wide[i] = v
	}
}
