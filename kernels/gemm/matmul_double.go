package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
)

// doubleForm is a form of matmul_double.cu.
type doubleForm struct {
	m, n, step, stages int64 // the tile of C of a block, its step along k, and the pieces in shared memory
	threads            int
	join               int64 // blocks of a cluster, whose parts of sums are added up there; 0: there are none
	few                bool  // for a C of few rows, or of few columns, which is written transposed
	kernel             *kernels.Kernel
}

func doubleOf(name string, m, n, stages int64, threads int, join int64) doubleForm {
	return doubleForm{m, n, 16, stages, threads, join, false, own.Kernel("matmul_double", "matmul_double_"+name, doubleBody)}
}

func doubleFew(name string, m, n, stages int64, threads int) doubleForm {
	return doubleForm{m, n, 16, stages, threads, 0, true, own.Kernel("matmul_double", "matmul_double_"+name, doubleFewBody)}
}

// doubleForms are the forms, as matmul_double.cu compiles them.
var doubleForms = [...]doubleForm{
	doubleLarge: doubleOf("large", 128, 128, 4, 256, 0),
	doubleSmall: doubleOf("small", 64, 64, 3, 128, 0),
	doubleTiny:  doubleOf("joined_tiny", 32, 32, 4, 128, 8),
	doubleRows:  doubleFew("rows", 32, 128, 4, 128),
}

const (
	doubleLarge = iota
	doubleSmall
	doubleTiny
	doubleRows
)

// shared returns the dynamic shared memory of a block, in bytes: stages of pieces of A and B, whose rows
// are followed by 4 unused elements, and behind them a tile that a cluster sends; in their place at the
// end a tile of sums, whose rows are followed by 2.
func (f doubleForm) shared() int {
	stages := f.stages * (f.m + f.n) * (f.step + 4)
	if f.join > 0 {
		return int(8 * (stages + f.m*f.n))
	}
	return int(8 * max(stages, f.m*(f.n+2)))
}

// count returns the tiles of a batch of products of m x n elements.
func (f doubleForm) count(batch, m, n int64) int64 {
	if f.few && m > n {
		m, n = n, m
	}
	return batch * kernels.CeilDiv(m, f.m) * kernels.CeilDiv(n, f.n)
}

// doubleCut is how a product runs on a form: sums in so many parts, added up by a cluster, and those in so many
// copies of C, added up by another launch.
type doubleCut struct {
	form          int
	parts, copies int64
}

// chunk returns the terms of a part of a copy.
func (d doubleCut) chunk(k int64) int64 {
	step := doubleForms[d.form].step // rows of a part stay aligned
	return max(kernels.CeilDiv(kernels.CeilDiv(k, d.parts*d.copies), step)*step, step)
}

// blocks returns the blocks of the launch that multiplies.
func (d doubleCut) blocks(c result, k int64) int64 {
	f := doubleForms[d.form]
	blocks := f.count(c.batch, c.m, c.n) * d.parts * max(kernels.CeilDiv(k, d.chunk(k)*d.parts), 1)
	return kernels.CeilDiv(blocks, max(f.join, 1)) * max(f.join, 1)
}

// appendDouble appends the launches of a product by a form of matmul_double.cu.
func appendDouble(p *kernels.Plan, dev kernels.Device, d doubleCut, c result, k int64, transA, transB bool) {
	f, chunk, to, e := doubleForms[d.form], d.chunk(k), out, c.epilogue
	copies := max(kernels.CeilDiv(k, chunk*d.parts), 1)
	if copies > 1 {
		to, e = p.Workspace(copies*c.count()*c.dt.Size()), Epilogue{}
	}
	args := doubleArgs{tiledArgs{kernels.In(0), kernels.In(1), to, c.m, c.n, k, transA, transB}, c.batch, chunk, d.parts}
	if f.few {
		args.Parts = 0
		if c.m > c.n {
			args.tiledArgs, args.Parts, e = args.transposed(), 1, e.transposed()
		}
	}
	p.Launch(f.kernel, int(d.blocks(c, k)), f.threads, args, e.arguments(c.dt)).Shared = f.shared()
	if copies > 1 {
		appendCombine(p, dev, c, to, copies)
	}
}

// doubleArgs are the first arguments of the kernels.
type doubleArgs struct {
	tiledArgs
	Batch, Chunk int64
	Parts        int64 `arg:"int32"` // of a copy that a cluster adds up; of a form for few rows whether C is written transposed
}

func doubleBody(c kernels.Call) {
	x := kernels.Args[doubleArgs](c)
	tiledBody[float64](c, x.tiledArgs, x.Batch, x.Chunk*x.Parts)
}

func doubleFewBody(c kernels.Call) {
	x := kernels.Args[doubleArgs](c)
	if x.Parts == 1 {
		x.tiledArgs = x.transposed()
	}
	tiledBody[float64](c, x.tiledArgs, x.Batch, x.Chunk)
}
