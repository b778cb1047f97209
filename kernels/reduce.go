package kernels

import (
	"fmt"
	"regexp"
	"sync"
)

// reduceKernels are the kernels of one reduction, by type, and the PTX of their
// module; none where it is reduce.cu itself.
type reduceKernels struct {
	part, join [2]*Kernel
	ptx        []byte
}

// reductions holds the kernels of the reductions planned so far, by their
// module, so that a program that plans one twice loads it once.
var reductions sync.Map // string to *reduceKernels

// marked is a line of the PTX of reduce.cu that an expression takes the place of.
var marked = regexp.MustCompile(`(?m)^\tadd\.f64 \t?(%fd\d+), (%fd\d+), (%fd\d+); // (STEP|JOIN)\n`)

// generate writes the PTX of reduce.cu for another expression. It names the first
// version of PTX that has all that stands in it, so that drivers older than the
// compiler take it: 6.3, of CUDA 10.0.
func (r *Reduction) generate() ([]byte, error) {
	text, err := own.image("reduce.ptx.gz")
	if err != nil {
		return nil, err
	}
	text = regexp.MustCompile(`(?m)^\.version .*$`).ReplaceAll(text, []byte(".version 6.3"))
	return marked.ReplaceAllFunc(text, func(line []byte) []byte {
		m := marked.FindSubmatch(line)
		return []byte(r.lines(string(m[1]), string(m[2]), string(m[3]), string(m[4]) == "STEP"))
	}), nil
}

// kernels gives the kernels of a reduction, made at first use.
func (r *Reduction) kernels() (*reduceKernels, error) {
	module := "reduce"
	name := r.String()
	plain := name == "a + b" // which is what reduce.cu says itself
	if !plain {
		module = "reduce(" + name + ")"
	}
	if k, ok := reductions.Load(module); ok {
		return k.(*reduceKernels), nil
	}
	var ptx []byte
	if !plain {
		var err error
		if ptx, err = r.generate(); err != nil {
			return nil, err
		}
	}
	k, _ := reductions.LoadOrStore(module, &reduceKernels{
		part: [2]*Kernel{{module, "reduce_part_f32", reducePartBody[float32](r)}, {module, "reduce_part_f64", reducePartBody[float64](r)}},
		join: [2]*Kernel{{module, "reduce_join_f32", reduceJoinBody[float32](r)}, {module, "reduce_join_f64", reduceJoinBody[float64](r)}},
		ptx:  ptx,
	})
	return k.(*reduceKernels), nil
}

// reducePolicy is the launch policy of Reduce: that of the rows of Sum, whose
// loop it shares.
var reducePolicy = struct {
	block  int
	chunk  int64 // least elements of a block
	blocks int64 // blocks wanted for each multiprocessor
	join   int   // threads of the block that joins
}{block: 256, chunk: 1 << 14, blocks: 32, join: 1024}

// Reduce plans, for n elements x and a reduction a op f(b),
//
//	out = identity op f(x[0]) op f(x[1]) op ... op f(x[n-1])
//
// in double precision, joined in the same order in every run.
func Reduce(dev Device, dt Dtype, n int64, r *Reduction, identity float64) (*Plan, error) {
	k, err := r.kernels()
	if err != nil {
		return nil, err
	}
	p := &Plan{Op: fmt.Sprintf("reduce_%v(%d, %v)", dt, n, r), Inputs: []int64{n * dt.Size()}, Out: dt.Size(), Flops: n * (1 + int64(r.f.operations()))}
	pol := reducePolicy
	whole := int64(pol.block) * 16 / dt.Size() // one load of each thread
	chunk := max(ceilDiv(n, max(int64(dev.SMs)*pol.blocks, 1)), pol.chunk)
	chunk = ceilDiv(chunk, whole) * whole
	blocks := max(ceilDiv(n, chunk), 1)
	parts := p.scratch(blocks * 8)
	p.launch(k.part[dt], int(blocks), pol.block, Ref{0, 0}, parts, n, chunk, identity)
	p.launch(k.join[dt], 1, pol.join, parts, Ref{Out, 0}, int32(blocks), identity)
	return p, nil
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
		Parallel(int64(c.Grid[0]), max(grain/chunk, 1), func(lo, hi int64) {
			const piece = 512 // stays in the first-level cache
			b, f, scratch := make([]float64, piece), make([]float64, piece), make([]float64, piece*r.f.operations())
			pieces := make([]float64, 0, ceilDiv(chunk, piece))
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

// generatedImage is the PTX of a module made at run time. CUDA 10.0 is the first
// that takes it.
func generatedImage(module string) (text []byte, minDriver int, ok bool) {
	k, ok := reductions.Load(module)
	if !ok || k.(*reduceKernels).ptx == nil {
		return nil, 0, false
	}
	return k.(*reduceKernels).ptx, 10000, true
}
