package basic

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// updateMode is what a launch of update.cu does.
type updateMode string

const (
	writeRows   updateMode = "update_rows"
	replaceRows updateMode = "update"
	readRows    updateMode = "rows_at"
)

// updateKernels are the kernels by bytes of a word.
var updateKernels = map[updateMode]map[int64]*kernels.Kernel{
	writeRows: byWord("update", string(writeRows), writeRows.body), replaceRows: byWord("update", string(replaceRows), replaceRows.body), readRows: byWord("update", string(readRows), readRows.body),
}

type updateArgs struct {
	X, Rows, Position, Out kernels.Ref
	Words                  int64
	Lines, Inner, Each     wideDivide
	Extent, Count          int64
}

// Rows are count rows of a tensor along an axis, from a position on that is computed: one for all, or one for each index of axis 0.
type Rows struct {
	Dtype     kernels.Dtype
	Shape     []int // of the tensor
	Axis      int
	Count     int64
	Positions int64 // elements of the position, of Int64: 1 or Shape[0]
}

// Update plans out = x with those rows replaced; the inputs are x, the rows and the position. Nothing is replaced where the rows do
// not fit into the axis. inPlace plans the same over x: out is x's memory, and only the rows are written.
func (r Rows) Update(dev kernels.Device, inPlace bool) (*kernels.Plan, error) {
	if inPlace {
		return r.plan(writeRows)
	}
	return r.plan(replaceRows)
}

// Read plans out = those rows of x, 0 where they do not fit into the axis; the inputs are x and the position.
func (r Rows) Read(dev kernels.Device) (*kernels.Plan, error) { return r.plan(readRows) }

func (r Rows) plan(mode updateMode) (*kernels.Plan, error) {
	p := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%v, %d along %d)", mode, r.Dtype, r.Shape, r.Count, r.Axis)}
	outer, extent, inner, err := alongAxis(r.Shape, r.Axis, r.Count)
	switch {
	case err != nil:
	case r.Count < 1 || r.Count > extent:
		err = fmt.Errorf("got %d rows, want 1 to %d", r.Count, extent)
	case r.Positions != 1 && (r.Axis == 0 || r.Positions != int64(r.Shape[0])):
		err = fmt.Errorf("got %d positions, want 1 or one for each index of axis 0 of %v, before axis %d", r.Positions, r.Shape, r.Axis)
	}
	if err != nil {
		return p.Or(err)
	}
	size := inner * r.Dtype.Size() // of a row
	whole, part, position := outer*extent*size, outer*r.Count*size, r.Positions*kernels.Int64.Size()
	word := wordOf(size)
	args := updateArgs{X: kernels.In(0), Rows: kernels.In(1), Position: kernels.In(2), Out: kernels.At(kernels.Out, 0), Words: part / word,
		Lines: wideDivideBy(r.Count), Inner: wideDivideBy(size / word), Each: wideDivideBy(outer / r.Positions), Extent: extent, Count: r.Count}
	p.Inputs, p.Out = []int64{whole, part, position}, whole
	switch mode {
	case writeRows:
		p.Accessed = []int64{0, part, position, part}
	case replaceRows:
		args.Words, args.Lines = whole/word, wideDivideBy(extent)
	case readRows:
		args.Rows, args.Position = kernels.In(0), kernels.In(1)
		p.Inputs, p.Out, p.Accessed = []int64{whole, position}, part, []int64{part, position, part}
	}
	if args.Words == 0 {
		return p, nil
	}
	blocks := kernels.CeilDiv(args.Words, gatherEach*indicesBlock)
	p.Launch(updateKernels[mode][word], int(blocks), indicesBlock, args)
	return p.Or(kernels.CheckGrid(blocks))
}

// body returns the Go body for words of that many bytes.
func (mode updateMode) body(word int64) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[updateArgs](c)
		x, out, position := kernels.Slice[uint8](c, args.X), kernels.Slice[uint8](c, args.Out), kernels.Slice[int64](c, args.Position)
		size, part := args.Inner.D*word, args.Count*args.Inner.D*word
		outer := args.Words / args.Inner.D / args.Lines.D
		kernels.Parallel(outer, max(kernels.Grain/part, 1), func(lo, hi int64) {
			for o := lo; o < hi; o++ {
				p, from := position[o/args.Each.D], o*args.Extent*size
				fits := p >= 0 && p <= args.Extent-args.Count
				if mode == replaceRows {
					copy(out[from:from+args.Extent*size], x[from:])
				}
				switch {
				case mode == readRows && fits:
					copy(out[o*part:(o+1)*part], x[from+p*size:])
				case mode == readRows:
					clear(out[o*part : (o+1)*part])
				case fits:
					copy(out[from+p*size:from+p*size+part], kernels.Slice[uint8](c, args.Rows)[o*part:])
				}
			}
		})
	}
}
