package reduce

import (
	"bytes"
	"fmt"
	"regexp"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// reduceImage is the PTX of reduce.cu with the instructions of a reduction instead of its own. The code is written when a device needs it.
type reduceImage struct{ codegen.Reduction }

// The lines of reduce.cu's PTX that change: a step accumulates an element, a join combines two accumulators.
var (
	marked     = regexp.MustCompile(`(?m)^\tadd\.f64 \t?(%fd\d+), (%fd\d+), (%fd\d+); // (STEP|JOIN)\n`)
	ptxVersion = regexp.MustCompile(`(?m)^\.version .*$`)
	ptxHead    = regexp.MustCompile(`(?m)^\.address_size 64\n`)
	ptxTarget  = regexp.MustCompile(`(?m)^\.target .*$`)
	ptxFirst   = regexp.MustCompile(`(?m)^\tld\.param\.u64 .*_param_0\];\n`) // the first instruction of an entry
)

// imageOf returns the image of a reduction: reduce.cu itself computes "a + b".
func imageOf(r codegen.Reduction) kernels.Image {
	if r.String() == "a + b" {
		return own.Image("reduce")
	}
	return reduceImage{r}
}

func (i reduceImage) Name() string { return "stheno/reduce(" + i.String() + ")" }

// Digests returns the digests of reduce.cu and of the functions in the reduction.
func (i reduceImage) Digests() (map[string]string, error) {
	digests, err := codegen.DigestsOf(i.Function())
	if err == nil {
		digests["reduce"] = own.Digests()["reduce"]
	}
	return digests, err
}

// Code returns PTX of the version that its functions need, so that drivers older than the compiler accept it. From 9.0 on it waits as follow.cuh does: reduce.cu's
// PTX is for older devices, too, and does not.
func (i reduceImage) Code(major, minor int) (kernels.Code, error) {
	text, err := own.PTX("reduce")
	if err != nil {
		return kernels.Code{}, err
	}
	fs, err := codegen.MathFunctions()
	if err != nil {
		return kernels.Code{}, err
	}
	b := expr.NewBuilder(kernels.Float64, kernels.Float64)
	join, err := b.Func(b.Apply(i.Operator(), b.Operand(0), b.Operand(1)))
	if err != nil {
		return kernels.Code{}, err
	}
	globals := ""
	text = marked.ReplaceAllFunc(text, func(line []byte) []byte {
		m := marked.FindSubmatch(line)
		w := expr.NewAssembler(fs)
		x, y := w.Register(expr.F64), w.Register(expr.F64)
		w.Line("mov.f64 %s, %s", x, m[2])
		w.Line("mov.f64 %s, %s", y, m[3])
		if string(m[4]) == "STEP" {
			y = w.Apply(i.Function(), []string{y})[0]
			globals = w.Globals()
		}
		w.Line("mov.f64 %s, %s", m[1], w.Apply(join, []string{x, y})[0])
		return []byte(w.Block())
	})
	version := expr.Version
	if major >= 9 {
		version = expr.HopperVersion
		text = ptxTarget.ReplaceAll(text, []byte(".target sm_90"))
		text = ptxFirst.ReplaceAll(text, []byte("\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n$0"))
	}
	text = ptxVersion.ReplaceAll(text, []byte(version))
	at := ptxHead.FindIndex(text)
	if at == nil {
		return kernels.Code{}, fmt.Errorf("the PTX of reduce.cu has no head")
	}
	return kernels.Code{Text: bytes.Join([][]byte{text[:at[1]], []byte(globals), text[at[1]:]}, nil), Target: manifest.PTX, MinDriver: expr.MinDriver}, nil
}

type reduceArgs struct {
	In, Out, Parts, Arrivals kernels.Ref
	N, Chunk                 int64
	Identity                 float64
}

// Reduce plans, for n elements x and a reduction a op f(b),
//
//	out = identity op f(x[0]) op f(x[1]) op ... op f(x[n-1])
//
// in double precision, in the same order in every run.
func Reduce(dev kernels.Device, dt kernels.Dtype, n int64, r codegen.Reduction, identity float64) *kernels.Plan {
	kernel, in := &kernels.Kernel{Image: imageOf(r), Entry: "reduce_" + dt.String()}, expr.NewInterpreter(r.Function())
	if kernel.Body = reduceBody[float32](r, in); dt == kernels.Float64 {
		kernel.Body = reduceBody[float64](r, in)
	}
	p := &kernels.Plan{Op: fmt.Sprintf("reduce_%v(%d, %v)", dt, n, r), Inputs: []int64{n * dt.Size()}, Out: dt.Size(), Flops: n * (1 + int64(r.Function().Operations()))}
	pol := reducePolicies.On(dev)
	block, chunk := int64(pol.block), max(kernels.CeilDiv(n, max(int64(dev.SMs)*pol.blocksPerSM, 1)), pol.chunkMin)
	if chunk*dt.Size() > pol.wideMinBytes {
		block = int64(pol.maxBlock)
	}
	lone := pol.loneMaxBytes
	if len(r.Function().Functions()) > 0 {
		lone = pol.loneMaxBytesOfFunctions
	}
	if n*dt.Size() <= lone || !dev.Cooperative { // one block, whose threads have all their elements in flight if they can
		chunk, block = n, min(max(arith.Pow2(kernels.CeilDiv(n*dt.Size(), 64)), block), int64(pol.maxBlock))
	}
	const aligned = 128 // elements; 16-byte loads of a warp
	chunk = max(arith.RoundUp(chunk, aligned), aligned)
	blocks := max(kernels.CeilDiv(n, chunk), 1)
	parts := p.Workspace(blocks * 8)
	p.Launch(kernel, int(blocks), int(block), reduceArgs{kernels.In(0), kernels.At(kernels.Out, 0), parts, arrivals(blocks > 1, parts), n, chunk, identity})
	return p
}

func reduceBody[T kernels.Float](r codegen.Reduction, in *expr.Interpreter) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[reduceArgs](c)
		x, parts, n, chunk, blocks := kernels.Slice[T](c, args.In), kernels.Slice[float64](c, args.Parts), args.N, args.Chunk, int64(c.Grid[0])
		kernels.Parallel(blocks, max(kernels.Grain/chunk, 1), func(lo, hi int64) {
			b, f := make([]float64, expr.BlockSize), make([]float64, expr.BlockSize)
			from, to := []unsafe.Pointer{unsafe.Pointer(&b[0])}, []unsafe.Pointer{unsafe.Pointer(&f[0])}
			pieces := make([]float64, 0, kernels.CeilDiv(chunk, expr.BlockSize))
			for block := lo; block < hi; block++ {
				pieces = pieces[:0]
				for at := block * chunk; at < min((block+1)*chunk, n); at += expr.BlockSize {
					x := x[at:min(at+expr.BlockSize, (block+1)*chunk, n)]
					for i, v := range x {
						b[i] = float64(v)
					}
					in.Run(len(x), from, to) // fails only for another number of operands
					pieces = append(pieces, r.Fold(f[:len(x)]))
				}
				parts[block] = args.Identity
				if len(pieces) > 0 {
					parts[block] = r.Join(args.Identity, r.Fold(pieces))
				}
			}
		})
		all := parts[0]
		if blocks > 1 {
			all = r.Join(args.Identity, r.Fold(parts[:blocks]))
		}
		kernels.Slice[T](c, args.Out)[0] = T(all)
	}
}
