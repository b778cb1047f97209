package versions

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// TiledMatMuls is the number of versions of MatMul for any product on any device. Those after them are products of square matrices in BF16 on the
// tensor cores of compute capability 9.0: see [WarpgroupMatMul].
const TiledMatMuls = len(matmuls)

// warpgroupSide is the number that the side of their matrices is a multiple of.
const warpgroupSide = 256

type warpgroupArgs struct {
	A, B any // kernels.TensorMap, or kernels.Ref without TMA
	C    kernels.Ref
	N    int64 `arg:"int32"`
}

type splitSixArgs struct {
	Operands [2]struct{ X, Planes kernels.Ref } // A and B
	N        int64
}

// A warpgroupMatMul is a version after the tiled ones.
type warpgroupMatMul struct {
	kernel     *kernels.Kernel
	cols       int64 // of a block's tile, which has 128 rows
	threads    int
	stages     int64 // of copies by TMA; 0 without it
	persistent bool  // as many blocks as multiprocessors
	cluster    int64 // blocks that share a K slice of B, or 1
	six        bool  // K slices of 32 of three planes of float32 operands, instead of 64 of BF16
}

var warpgroupMatMuls = [...]warpgroupMatMul{
	bf16Kernel("wgmma").with(128, 128, 0, false, 1),
	bf16Kernel("tma").with(128, 128, 6, false, 1),
	bf16Kernel("roles").with(128, 288, 6, false, 1),
	bf16Kernel("wide").with(256, 384, 4, false, 1),
	bf16Kernel("persistent").with(256, 384, 4, true, 1),
	bf16Kernel("cluster").with(256, 384, 4, true, 2),
	{kernel: library.Kernel("matmul_six", "matmul_six_f32", warpgroupBody), cols: 128, threads: 384, stages: 4, persistent: true, cluster: 2, six: true},
}

func bf16Kernel(step string) warpgroupMatMul {
	return warpgroupMatMul{kernel: library.Kernel("matmul_"+step, "matmul_"+step+"_bf16", warpgroupBody)}
}

func (w warpgroupMatMul) with(cols int64, threads int, stages int64, persistent bool, cluster int64) warpgroupMatMul {
	w.cols, w.threads, w.stages, w.persistent, w.cluster = cols, threads, stages, persistent, cluster
	return w
}

var (
	ceiling  = warpgroupMatMul{kernel: library.Kernel("matmul_ceiling", "matmul_ceiling_bf16", warpgroupCeilingBody)}.with(256, 256, 1, true, 1)
	splitSix = library.Kernel("matmul_six", "matmul_six_split_f32", splitSixBody)
)

// WarpgroupMatMul plans C = A B of n x n matrices by version 8 to 14 of MatMul, on a GPU of compute capability 9.0 or on the
// host; n is a multiple of 256. C is in float32, and so are A and B if operands is FullPrecision: versions before 14 then round them to BF16, in
// launches of their own. If operands is BF16, A and B are in BF16, which version 14 does not take.
func WarpgroupMatMul(dev kernels.Device, v int, n int64, operands kernels.Precision) (*kernels.Plan, error) {
	if most := TiledMatMuls + len(warpgroupMatMuls); v <= TiledMatMuls || v > most {
		return nil, fmt.Errorf("versions: matmul: got version %d, want %d to %d", v, TiledMatMuls+1, most)
	}
	if err := checkWarpgroup(dev, fmt.Sprintf("version %d", v), n); err != nil {
		return nil, err
	}
	w := warpgroupMatMuls[v-TiledMatMuls-1]
	if operands != kernels.FullPrecision && (operands != kernels.BF16 || w.six) {
		return nil, fmt.Errorf("versions: matmul: got operands in %v, want float32, or BF16 for a version before 14, not for version %d", operands, v)
	}
	p := w.plan(dev, fmt.Sprintf("matmul(%d x %d) version %d", n, n, v), n)
	if operands == kernels.BF16 || w.six {
		return p, nil
	}
	return roundFirst(dev, p, n)
}

// WarpgroupCeiling plans the instructions of [WarpgroupMatMul] for matrices in BF16 without their copies: C becomes n / 64 times the product of the
// first 64 columns of A and the first 64 rows of B.
func WarpgroupCeiling(dev kernels.Device, n int64) (*kernels.Plan, error) {
	if err := checkWarpgroup(dev, "the ceiling", n); err != nil {
		return nil, err
	}
	return ceiling.plan(dev, fmt.Sprintf("matmul(%d x %d) ceiling", n, n), n), nil
}

// checkWarpgroup returns an error unless a device runs products of n x n matrices on warpgroups.
func checkWarpgroup(dev kernels.Device, what string, n int64) error {
	const most = 1 << 15 // kernels count bytes of a row of tiles in 32 bits
	if n < warpgroupSide || n%warpgroupSide != 0 || n > most {
		return fmt.Errorf("versions: matmul: got matrices of side %d, want a multiple of %d up to %d for %s", n, warpgroupSide, most, what)
	}
	if dev.Kind == kernels.GPU && (dev.Major != 9 || dev.Minor != 0) {
		return fmt.Errorf("versions: matmul: got %s of compute capability %d.%d, want 9.0 for %s, which uses its wgmma", dev.Name, dev.Major, dev.Minor, what)
	}
	return nil
}

// roundFirst returns a plan of a product of n x n matrices in BF16 for operands in float32, which it rounds.
func roundFirst(dev kernels.Device, product *kernels.Plan, n int64) (*kernels.Plan, error) {
	round, err := gemm.Prepare{Form: gemm.BF16, Batch: 1, Rows: n, Cols: n}.Plan(dev)
	if err != nil {
		return nil, err
	}
	p := &kernels.Plan{Op: product.Op, Inputs: []int64{4 * n * n, 4 * n * n}, Out: product.Out, Flops: product.Flops}
	to := [2]kernels.Ref{p.Workspace(round.Out), p.Workspace(round.Out)}
	for operand, rounded := range to {
		appendPlan(p, round, rounded, kernels.In(kernels.Operand(operand)))
	}
	appendPlan(p, product, out, to[0], to[1])
	return p, nil
}

func (w warpgroupMatMul) plan(dev kernels.Device, op string, n int64) *kernels.Plan {
	size, a, b := 2*n*n, in0, in1
	p := &kernels.Plan{Op: op, Inputs: []int64{size, size}, Out: 4 * n * n, Flops: 2 * n * n * n}
	if w.six {
		p.Inputs = []int64{2 * size, 2 * size}
		a, b = p.Workspace(3*size), p.Workspace(3*size)
		p.Launch(splitSix, int(kernels.CeilDiv(n*n, 4*256)), 256, splitSixArgs{[2]struct{ X, Planes kernels.Ref }{{in0, a}, {in1, b}}, n * n}).Grid[1] = 2
	}
	grid := [3]int{int(n / w.cols), int(n / 128), 1}
	if w.persistent {
		blocks := min(n/w.cols*(n/128), int64(dev.SMs))
		grid = [3]int{int(max(blocks/w.cluster, 1) * w.cluster), 1, 1}
	}
	l := p.Launch(w.kernel, 0, w.threads, warpgroupArgs{w.operand(a, n, false), w.operand(b, n, true), out, n})
	if l.Grid = grid; w.stages > 0 {
		l.Shared = 2048 + int(w.stages*(128+w.cols)*w.depth()*2*w.planes()) // barriers, and stages at a multiple of 1024
	}
	return p
}

func (w warpgroupMatMul) planes() int64 {
	if w.six {
		return 3
	}
	return 1
}

func (w warpgroupMatMul) depth() int64 { return 64 / max(w.planes()-1, 1) }

// operand returns the argument for A or B: its address, or the tensor map for TMA. Boxes of A have 128 rows along K, boxes of B rows of 64 columns.
func (w warpgroupMatMul) operand(at kernels.Ref, n int64, b bool) any {
	if w.stages == 0 {
		return at
	}
	planes, depth := w.planes(), w.depth()
	t := kernels.TensorMap{
		Ref: at, Element: kernels.TensorBF16,
		Extents: []int64{n, n, planes, 1},
		Strides: []int64{2 * n, 2 * n * n, 2 * n * n * planes},
		Box:     []int64{depth, 128, 1, 1}, Swizzle: 2 * depth,
	}
	if b {
		t.Box, t.Swizzle = []int64{64, depth, 1, 1}, 128
	}
	return t
}

// matrix returns an operand of n numbers in float32: the sums of its planes.
func matrix(c kernels.Call, operand any, n int64) []float32 {
	at, planes := kernels.Ref{}, int64(1)
	switch o := operand.(type) {
	case kernels.Ref:
		at = o
	case kernels.TensorMap:
		at, planes = o.Ref, o.Extents[2]
	}
	x, bits := make([]float32, n), kernels.Slice[uint16](c, at)[:n*planes]
	for i := range x {
		for at := int64(i); at < n*planes; at += n {
			x[i] += math.Float32frombits(uint32(bits[at]) << 16)
		}
	}
	return x
}

// warpgroupBody multiplies matrices in BF16, or of three planes for each float32, in float32.
func warpgroupBody(c kernels.Call) {
	args := kernels.Args[warpgroupArgs](c)
	n := args.N
	multiplyInto(kernels.Slice[float32](c, args.C)[:n*n], matrix(c, args.A, n*n), matrix(c, args.B, n*n), n, n)
}

// warpgroupCeilingBody multiplies the first 64 columns by the first 64 rows, and the product by n / 64.
func warpgroupCeilingBody(c kernels.Call) {
	const terms = 64
	args := kernels.Args[warpgroupArgs](c)
	n, out, a, b := args.N, kernels.Slice[float32](c, args.C), matrix(c, args.A, args.N*args.N), matrix(c, args.B, args.N*args.N)
	first := make([]float32, 0, n*terms)
	for row := range n {
		first = append(first, a[row*n:][:terms]...)
	}
	multiplyInto(out[:n*n], first, b[:terms*n], n, terms)
	for i := range out[:n*n] {
		out[i] *= float32(n / terms)
	}
}

// multiplyInto is c = a b, n x k times k x n.
func multiplyInto(c, a, b []float32, n, k int64) {
	p, err := MatMul(kernels.Float32, 1, 1, n, n, k, false, false)
	if err == nil {
		err = p.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(c), nil)
	}
	if err != nil {
		panic(err) // of a plan whose sizes fit
	}
}

// splitSixBody writes three planes of both operands.
func splitSixBody(c kernels.Call) {
	args := kernels.Args[splitSixArgs](c)
	for _, o := range args.Operands {
		planes := kernels.Slice[uint16](c, o.Planes)
		for i, v := range kernels.Slice[float32](c, o.X)[:args.N] {
			for plane := range int64(3) {
				top := kernels.BF16.Round(v)
				planes[plane*args.N+int64(i)] = uint16(math.Float32bits(top) >> 16)
				v -= top
			}
		}
	}
}
