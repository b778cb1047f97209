package kernels

import (
	"fmt"
	"regexp"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// reduceImage is the PTX of reduce.cu with the instructions of an expression in
// the place of its own. The code is written when a device needs it.
type reduceImage struct {
	expression string // in its normal form, so that equal reductions have equal images
	step, join string // what replaces the lines that reduce.cu marks
}

// The lines that reduce.cu marks: a step takes in an element, a join two
// accumulators.
var (
	markedStep = regexp.MustCompile(`(?m)^\tadd\.f64 \t?(%fd\d+), (%fd\d+), (%fd\d+); // STEP\n`)
	markedJoin = regexp.MustCompile(`(?m)^\tadd\.f64 \t?(%fd\d+), (%fd\d+), (%fd\d+); // JOIN\n`)
	ptxVersion = regexp.MustCompile(`(?m)^\.version .*$`)
)

// image returns the image of a reduction: for "a + b" that of reduce.cu itself.
func (r *Reduction) image() Image {
	if name := r.String(); name != "a + b" {
		return reduceImage{name, r.lines("${1}", "${2}", "${3}", true), r.lines("${1}", "${2}", "${3}", false)}
	}
	return own.Image("reduce")
}

func (i reduceImage) Name() string { return "stheno/reduce(" + i.expression + ")" }

// Code returns PTX of version 6.3, of CUDA 10.0, the first that has all of its
// instructions, so that drivers older than the compiler take it.
func (i reduceImage) Code(major, minor int) (Code, error) {
	text, err := own.readImage(manifest.ImageFile("reduce", manifest.PTX))
	if err != nil {
		return Code{}, own.named(err)
	}
	text = ptxVersion.ReplaceAll(text, []byte(".version 6.3"))
	text = markedStep.ReplaceAll(text, []byte(i.step))
	text = markedJoin.ReplaceAll(text, []byte(i.join))
	return Code{text, manifest.PTX, 10000}, nil
}

// Reduce plans, for n elements x and a reduction a op f(b),
//
//	out = identity op f(x[0]) op f(x[1]) op ... op f(x[n-1])
//
// in double precision, joined in the same order in every run.
func Reduce(dev Device, dt Dtype, n int64, r *Reduction, identity float64) *Plan {
	image := r.image()
	part := &Kernel{image, "reduce_part_" + dt.String(), reducePartBody[float32](r)}
	join := &Kernel{image, "reduce_join_" + dt.String(), reduceJoinBody[float32](r)}
	if dt == Float64 {
		part.Body, join.Body = reducePartBody[float64](r), reduceJoinBody[float64](r)
	}
	p := &Plan{Op: fmt.Sprintf("reduce_%v(%d, %v)", dt, n, r), Inputs: []int64{n * dt.Size()}, Out: dt.Size(), Flops: n * (1 + int64(r.f.operations()))}
	pol := reducePolicies.on(dev)
	whole := int64(pol.block) * 16 / dt.Size() // one load of each thread
	chunk := max(CeilDiv(n, max(int64(dev.SMs)*pol.blocks, 1)), pol.chunk)
	chunk = CeilDiv(chunk, whole) * whole
	blocks := max(CeilDiv(n, chunk), 1)
	parts := p.Workspace(blocks * 8)
	p.Launch(part, int(blocks), pol.block, Ref{0, 0}, parts, n, chunk, identity)
	p.Launch(join, 1, pol.join, parts, Ref{Out, 0}, int32(blocks), identity)
	return p
}

// operations counts those of a term.
func (t *term) operations() int {
	if t == nil || t.x == nil {
		return 0
	}
	return 1 + t.x.operations() + t.y.operations()
}

func reducePartBody[T Float](r *Reduction) func(Call) {
	return func(c Call) {
		in, out, n, chunk, identity := Slice[T](c, 0), Slice[float64](c, 1), c.Int(2), c.Int(3), c.Float(4)
		Parallel(int64(c.Grid[0]), max(Grain/chunk, 1), func(lo, hi int64) {
			const piece = 512 // stays in the first-level cache
			b, f, scratch := make([]float64, piece), make([]float64, piece), make([]float64, piece*r.f.operations())
			pieces := make([]float64, 0, CeilDiv(chunk, piece))
			for block := lo; block < hi; block++ {
				pieces = pieces[:0]
				for at := block * chunk; at < min((block+1)*chunk, n); at += piece {
					x := in[at:min(at+piece, (block+1)*chunk, n)]
					b, f := b[:len(x)], f[:len(x)]
					for i, v := range x {
						b[i] = float64(v)
					}
					r.f.values(b, f, scratch)
					pieces = append(pieces, r.fold(f))
				}
				out[block] = identity
				if len(pieces) > 0 { // of no elements there are none
					out[block] = r.join(identity, r.fold(pieces))
				}
			}
		})
	}
}

func reduceJoinBody[T Float](r *Reduction) func(Call) {
	return func(c Call) {
		parts, out := Slice[float64](c, 0), Slice[T](c, 1)
		out[0] = T(r.join(c.Float(3), r.fold(parts[:c.Int(2)])))
	}
}
