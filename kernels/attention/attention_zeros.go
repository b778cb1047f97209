package attention

import "github.com/stheno-ml/stheno/kernels"

// A block of attention_zeros has zerosThreads threads and stores zerosBytes bytes.
const (
	zerosThreads = 256
	zerosBytes   = 4 * 16 * zerosThreads
)

var zerosKernel = own.Kernel("attention_few", "attention_zeros", func(c kernels.Call) {
	a := kernels.Args[zerosArgs](c)
	to := kernels.Slice[uint16](c, a.To)
	for run := range int64(c.Grid[0]) / a.Blocks {
		clear(to[run*a.Stride/2:][:a.Bytes/2])
	}
})

// zerosArgs are runs of Bytes bytes, Stride bytes apart, each of Blocks blocks.
type zerosArgs struct {
	To            kernels.Ref
	Bytes, Stride int64
	Blocks        int64 `arg:"int32"`
}

// minUnseen is the minimum number of elements of results of queries without keys that a launch of their own stores. With fewer the launch takes longer than the stores of the
// other kernels. Tests set it.
//
// H200, in a CUDA graph, us               elements   in the kernel   own launch
// bf16   8 heads,  576 x 64 of 64             2^18             7.3          8.7
// bf16   8 heads, 2112 x 64 of 64             2^20             9.1          9.2
// bf16   8 heads, 8256 x 64 of 64             2^22            16.4         10.2
// bf16  64 heads,  228 x 100 of 128           2^20            11.0         12.5
// bf16 200 heads,  173 x 10 of 32             2^20            15.3         12.2
// f32  200 heads,  173 x 10 of 32             2^20            10.1         10.4
// f32  200 heads,  665 x 10 of 32             2^22            20.6         13.1
// f32    6 heads, 6447 x 372 of 39          1.4e6             57.0         28.7
// f32    2 heads, 33068 x 300 of 64           2^22            22.1         26.8
var minUnseen = float64(1 << 20)

// Seeing returns the number of queries of a head that have statistics: those from the first one on that sees a key, if the problem is causal, has more queries than keys, and the results of the
// others are large. A launch stores these, zeros, and the other launches of a plan compute the last queries alone, as many as there are keys.
func (p Problem) Seeing() int64 {
	if unseen := p.Queries - p.Keys; p.Causal && unseen > 0 && float64(p.Batch*p.Heads*p.Dim)*float64(unseen) >= minUnseen {
		return p.Keys
	}
	return p.Queries
}

// seen returns the problem of those queries, in the memory of all.
func (p *Problem) seen() *Problem {
	seen := *p
	seen.unseen = p.Queries - p.Seeing()
	seen.Queries -= seen.unseen
	return &seen
}

// last returns where the problem's queries begin in an operand of all queries of each head.
func (p *Problem) last(at kernels.Ref, s Strides) operand {
	at.Offset += p.unseen * s.Row * p.Dtype.Size()
	return operand{at, s}
}

// afterZeros returns where the problem's queries begin in a dense operand of the results of all queries, and launches what stores zeros for the others.
func (p *Problem) afterZeros(plan *kernels.Plan, to kernels.Ref) kernels.Ref {
	if p.unseen == 0 {
		return to
	}
	s, runs, size := p.queryStrides(), p.Batch, p.Dtype.Size()
	a := zerosArgs{To: to, Bytes: p.unseen * s.Row * size, Stride: s.Batch * size}
	if !p.RowsFirst {
		runs, a.Stride = runs*p.Heads, s.Head*size
	}
	a.Blocks = kernels.CeilDiv(a.Bytes+14, zerosBytes) // a run may begin up to 14 bytes beyond a piece
	plan.Graph = true
	plan.Launch(zerosKernel, int(runs*a.Blocks), zerosThreads, a)
	return p.last(to, s).At
}
