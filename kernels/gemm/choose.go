package gemm

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// problem is a product as a kernel computes it on a device.
type problem struct {
	Product
	dev    kernels.Device
	a, b   kernels.Ref
	c      kernels.Ref
	transC bool // C is stored transposed
	added  bool // the matrices of C are added up
}

// transposed returns the problem that computes the transpose of C.
func (x problem) transposed() problem {
	x.M, x.N, x.a, x.b, x.A, x.B = x.N, x.M, x.b, x.a, x.B, x.A
	x.A.Trans, x.B.Trans = !x.A.Trans, !x.B.Trans
	x.epilogue, x.transC = x.epilogue.transposed(), !x.transC
	return x
}

func (x problem) transposedIf(is bool) problem {
	if is {
		return x.transposed()
	}
	return x
}

// longRows reads a column, which is a row as well, in the layout whose rows are long.
func longRows(x problem) problem {
	if x.K <= 1 && !x.strided() {
		x.A.Trans, x.B.Trans = true, false
	}
	return x
}

// wide and tall return a problem with at least as many columns as rows, or rows as columns; column one with a single column.
func wide(x problem) problem { x = longRows(x); return x.transposedIf(x.M > x.N) }
func tall(x problem) problem { x = longRows(x); return x.transposedIf(x.M < x.N) }

func column(x problem) problem {
	x = x.transposedIf(x.N != 1)
	x.A.Trans = x.A.Trans && x.M > 1                            // a column is a row as well
	x.B.Trans = x.B.Trans && (x.strided() || x.B.Form != Plain) // forms have pitches
	return x
}

func (x *problem) sms() int64 { return int64(x.dev.SMs) }

// elements counts those of C.
func (x *problem) elements() int64 { return x.Batch * x.M * x.N }

// size returns the bytes of an element.
func (x *problem) size() int64 { return x.Dtype.Size() }

// large returns the bytes of the larger operand.
func (x *problem) large() int64 { return x.Batch * max(x.M, x.N) * x.K * x.size() }

// candidate is a kernel for products, by the problems that it takes, its cuts of K and its launches.
type candidate struct {
	name    string
	dtype   kernels.Dtype
	form    Form                  // of the operands that it reads
	strided bool                  // whether operands may have strides
	shares  bool                  // whether an operand may be one matrix for all of the other's
	sized   bool                  // whether the launch sets the size of the cluster, the parts of a cut
	apart   bool                  // whether another launch applies an epilogue
	rounds  bool                  // whether it rounds operands
	turns   bool                  // whether another launch transposes B where that is transposed
	copies  copying               // how it copies operands
	orient  func(problem) problem // returns the orientation that the kernel computes; nil: any
	able    limits                // what the kernel can compute
	worth   []limits              // where it is fast: one of these, if there are any, has to admit a problem
	tile
	split          splitPolicy
	element        kernels.Measured[float64] // time of an element of a tile, relative to that of other candidates of the group
	kernel, joined *kernels.Kernel           // joined: in clusters that add up parts of K
	kernels        [2][2]*kernels.Kernel     // in place of kernel, by the operands that are transposed
	cut            func(c *candidate, x *problem) (d cut, ok bool)
	all            func(c *candidate, x *problem, list []cut) []cut          // appends the cuts, in place of splits by cut
	rates          [2]*rates                                                 // on 9.0, and those of parts that a cluster adds up
	args           func(c *candidate, x *problem, d cut, to kernels.Ref) any // of the kernel, before the epilogue's
	special        func(c *candidate, p *kernels.Plan, x *problem, d cut)    // appends the launches, in place of args
}

// copying says which operands a kernel copies by 16 bytes, if they are aligned.
type copying int8

const (
	rows     copying = iota // all
	acrossK                 // if their rows run across K
	elements                // none
)

// emit appends the launches that compute a problem.
func (c *candidate) emit(p *kernels.Plan, x *problem, d cut) {
	if c.special != nil {
		c.special(c, p, x, d)
		return
	}
	if c.turns && x.B.Trans {
		x = x.turned(p)
	}
	kernel := c.kernel
	if d.parts > 1 && c.joined != nil {
		kernel = c.joined
	}
	x.launch(p, d, func(to kernels.Ref, e epilogueArgs) {
		if c.apart && e.Steps != 0 {
			to = p.Workspace(x.elements() * x.size())
			defer x.combine(p, to, 1)
		}
		args := []any{c.args(c, x, d, to)}
		if !c.able.plain && !c.apart {
			args = append(args, e)
		}
		blocks, shared := c.grid(x, d, e), c.shared+d.shared
		if c.step > 0 && d.parts <= 1 {
			shared = x.spread(shared, blocks, min(d.chunk, x.K))
		}
		l := p.Launch(kernel, int(blocks), cmp.Or(int(d.threads), c.threads), args...)
		if l.Shared = int(shared); c.sized && d.parts > 1 {
			l.Cluster = int(d.parts)
		}
	})
}

// spread returns so much dynamic shared memory of a block, at least `shared` bytes, that an SM holds no more than its share of a launch. On 9.0 blocks of a
// launch that begins before the last one has ended come two to an SM where others have none. Launches of few blocks or terms are shorter if they overlap.
// More blocks an SM than maxPerSM took up to 1.58 times as long (small_f32, 7 and 8 an SM).
//
// H200, us, m x k x n    before  now
// 248 x 549 x 1972       29.0    20.9, medium
// 766 x 1183 x 682       69.9    43.9, short
func (x *problem) spread(shared, blocks, terms int64) int64 {
	const minTerms, maxPerSM, reserved, unit = 65, 5, 1 << 10, 128 // reserved: bytes of each block that the device takes; unit: of what it gives
	n := kernels.CeilDiv(blocks, x.sms())
	if !isHopper(x.dev) || n > maxPerSM || n == 1 && (2*blocks <= x.sms() || terms < minTerms) {
		return shared
	}
	return max(shared, (int64(x.dev.SharedOptin)+reserved)/(n+1)/unit*unit+unit-reserved)
}

// when returns a copy of the candidate for problems that one of these limits admits.
//
//go:noinline
func (c *candidate) when(worth ...limits) *candidate {
	c = c.copy()
	c.worth = worth
	return c
}

//go:noinline
func (c *candidate) copy() *candidate {
	d := *c
	return &d
}

// tile is the work of a block.
type tile struct {
	m, n, step     int64 // rows and columns of C, and the K slice in shared memory
	slices, stages int64 // groups of threads, each with a part of the K slice; slices in flight
	threads        int
	cluster        int64 // blocks of a cluster; 0: none
	across         int64 // blocks side by side in the cluster; 0: one
	shared         int64 // dynamic shared memory, bytes
	resident       int64 // blocks of an SM that compute several tiles; 0: each computes one
	filled         bool  // rows beyond the last one of C, 16 at a time, are not computed
}

// share returns the work of the tiles of a problem, relative to that of full ones.
func (t *tile) share(x *problem) float64 {
	if !t.filled {
		return 1
	}
	const fixed = 16 // rows that take as long as what a block does once for all rows
	tiles := kernels.CeilDiv(x.M, t.m)
	return float64(arith.RoundUp(x.M, 16)+tiles*fixed) / float64(tiles*(t.m+fixed))
}

// count returns the tiles of C.
func (t *tile) count(x *problem) int64 {
	return kernels.CeilDiv(x.M, max(t.m, 1)) * kernels.CeilDiv(x.N, max(t.n, 1)) * x.Batch
}

// cut is how a candidate divides the work.
type cut struct {
	partials int64   // partial sums of an element of C, added by another launch; 0: 1
	parts    int64   // parts of a partial sum, reduced by the blocks of a cluster
	chunk    int64   // K of a part
	cluster  int64   // blocks that share slices of B
	blocks   int64   // blocks of the launch, or clusters
	streamed int64   // tiles, of a cluster, whose K slices are dealt out to blocks (stream-K)
	each     int64   // tiles, rows, matrices of a block, or lanes of a row
	threads  int64   // of a block; 0: the tile says
	shared   int64   // dynamic shared memory beside the tile's, bytes
	work     int64   // of a block, in the unit of rates; 0: by the others, or its share of the multiply-adds
	alone    int64   // of a block's slowest thread, in another unit; 0: as work
	us       float64 // by the model, 0 without one
}

// span is a range of numbers; with to 0 it has no end.
type span struct{ from, to int64 }

func (s span) has(n int64) bool { return n >= s.from && (s.to == 0 || n <= s.to) }

// perSM is a range of numbers for each SM; with below 0 it has no end.
type perSM struct{ from, below float64 }

func (s perSM) has(n float64, x *problem) bool {
	sms := float64(x.dev.SMs)
	return n >= s.from*sms && (s.below == 0 || n < s.below*sms)
}

// limits say which problems a candidate takes. A zero limit admits all.
type limits struct {
	on                       func(kernels.Device) bool
	m, n, k, batch, elements span
	side, long               span // the lesser and the greater of M and N
	c, work, tiles           perSM
	large                    perSM // bytes of the larger operand
	plain                    bool  // there is no epilogue
	transA, transB, straight bool  // A, B is transposed; B is not
	also                     func(c *candidate, x *problem) bool
}

func (l *limits) admit(c *candidate, x *problem) bool {
	return (l.on == nil || l.on(x.dev)) && l.m.has(x.M) && l.n.has(x.N) && l.k.has(x.K) && l.batch.has(x.Batch) && l.elements.has(x.elements()) &&
		l.side.has(min(x.M, x.N)) && l.long.has(max(x.M, x.N)) && l.c.has(float64(x.elements()), x) && l.work.has(float64(x.Batch)*float64(x.M)*float64(x.N)*float64(x.K), x) &&
		l.tiles.has(float64(c.count(x)), x) && l.large.has(float64(x.large()), x) && (!l.plain || x.epilogue.chain == 0) &&
		(x.A.Trans || !l.transA) && (x.B.Trans || !l.transB) && !(x.B.Trans && l.straight) && (l.also == nil || l.also(c, x))
}

// can reports whether the candidate computes a problem, in its own orientation; pays whether it is fast.
func (c *candidate) can(x *problem) bool {
	return c.dtype == x.Dtype && (c.strided || !x.strided()) && (c.shares || !x.shared()) && c.able.admit(c, x)
}

func (c *candidate) pays(x *problem) bool {
	for i := range c.worth {
		if c.worth[i].admit(c, x) {
			return true
		}
	}
	return len(c.worth) == 0
}

// choose returns the candidate for a problem, nil if there is none, the problem as the candidate computes it, and a cut. Where times can be predicted the
// candidate has the least predicted time, otherwise it is that of [problem.first].
func choose(x problem) (best *candidate, as problem, d cut) {
	if x.predictable() {
		return x.fastest(max(x.A.Form, x.B.Form))
	}
	return x.first()
}

// first returns the first candidate of [table] whose limits admit the problem, of a group that with the least time. Operands that were prepared leave
// no choice but the kernels that read them.
func (x problem) first() (best *candidate, as problem, d cut) {
	prepared := max(x.A.Form, x.B.Form)
	var turned problem // one for all candidates, whose functions let it escape
	for _, group := range table {
		for i := range group {
			c := group[i]
			if c.cut == nil {
				continue
			}
			turned = c.oriented(x)
			if prepared != Plain && c.form != prepared || !c.can(&turned) || prepared == Plain && !c.pays(&turned) {
				continue
			}
			if got, ok := c.cut(c, &turned); ok && (best == nil || got.us < d.us) && c.launchable(&turned, got) {
				best, as, d = c, turned, got
			}
		}
		if best != nil {
			break
		}
	}
	return best, as, d
}

// launchable reports whether a GPU can make the launches of a cut: their blocks and the numbers that kernels read in 32 bits are not too many. Those of fewer elements never are.
func (c *candidate) launchable(x *problem, d cut) bool {
	const huge = 1 << 31
	batch, m, n, k := float64(x.Batch), float64(x.M), float64(x.N), float64(x.K)
	if batch*max(m*n, m*k, k*n) < huge || x.dev.Kind == kernels.CPU {
		return true
	}
	p := &kernels.Plan{}
	c.emit(p, x, d)
	return launchable(p, x.dev)
}

// launchable reports whether a device can make the launches of a plan.
func launchable(p *kernels.Plan, dev kernels.Device) bool {
	return !slices.ContainsFunc(p.Launches, func(l kernels.Launch) bool { return l.Check(dev) != nil })
}

// oriented returns the orientation of a problem that the kernel computes.
func (c *candidate) oriented(x problem) problem {
	if c.orient != nil {
		return c.orient(x)
	}
	return x
}

// maxChunk is the most K of a split: kernels count it in 32 bits.
const maxChunk = 1 << 30

// splitPolicy says how K is split where a kernel has too few blocks for the device.
type splitPolicy struct {
	exactly            int64 // number of splits; 0: by what follows
	blocksPerSM        int64 // target number of blocks; 0: K is not split
	minK               int64 // least K of a split: shorter splits cost more in partial sums than they save
	minSplits          int64 // least number of splits
	unsplitBlocksPerSM int64 // with at least this many blocks K is not split; 0: no limit
	clusterMaxK        int64 // up to this K of a split, a cluster makes fewer splits than the target: a second launch costs more
	roundToNearest     bool  // rounds the number of splits to nearest, not down
	kMultiple          int64 // K of a split is a multiple of it; 0: 64
	fillTailMinK       int64 // from this K on, twice the splits if the blocks leave a quarter of the device idle; 0: never
	halveBlocksPerSM   int64 // minK is halved if splits of minK are fewer blocks than this

	minBlocksPerSM        float64 // of skinny kernels: fewer blocks are slow
	countSplitsBytesPerSM int64   // with a larger operand of at least this many bytes, splits count as blocks for minBlocksPerSM
}

// splits returns how many splits are wanted for a number of blocks.
func (s splitPolicy) splits(x *problem, blocks int64) int64 {
	if s.exactly > 0 {
		return s.exactly
	}
	if x.dev.Kind == kernels.CPU || s.blocksPerSM == 0 || s.unsplitBlocksPerSM > 0 && blocks >= s.unsplitBlocksPerSM*x.sms() {
		return 1
	}
	minK, wanted := s.minK, x.sms()*s.blocksPerSM
	if blocks*(x.K/minK) < s.halveBlocksPerSM*x.sms() {
		minK /= 2
	}
	if s.fillTailMinK > 0 && x.K >= s.fillTailMinK && wanted/blocks*blocks*4 < wanted*3 {
		wanted *= 2
	}
	n := wanted / blocks
	if s.roundToNearest {
		n = (wanted + blocks/2) / blocks
	}
	if n = min(n, x.K/minK); n >= max(s.minSplits, 2) {
		return n
	}
	return 1
}

// parts returns how many splits the blocks of clusters add up among themselves, a power of 2: 1 if another launch adds them up, or there are none.
func (s splitPolicy) parts(x *problem, blocks, cluster int64) int64 {
	n := s.splits(x, blocks)
	if n > cluster && cluster > 0 && kernels.CeilDiv(x.K, cluster) <= s.clusterMaxK {
		n = cluster
	}
	if n == 1 || n > cluster || x.K > maxChunk || !x.dev.HasClusters() {
		return 1
	}
	if up := arith.Pow2(n); up == n || x.K/up >= s.minK {
		return up
	}
	if down := int64(1) << (bits.Len64(uint64(n)) - 1); down >= s.minSplits {
		return down
	}
	return 1
}

// cut returns the cut into splits that another launch adds up.
func (s splitPolicy) cut(x *problem, blocks int64) cut {
	unit := cmp.Or(s.kMultiple, 64) // rows of a split stay aligned
	chunk := max(arith.RoundUp(kernels.CeilDiv(x.K, max(s.splits(x, blocks), kernels.CeilDiv(x.K, maxChunk))), unit), unit)
	partials := max(kernels.CeilDiv(x.K, chunk), 1)
	return cut{partials: partials, chunk: chunk, blocks: blocks * partials}
}

// launch calls launch once, with the place of the sums and the epilogue applied to them. Several partial sums go to scratch memory,
// [partials][elements of C], from which a second launch makes C, adding them in order.
func (x *problem) launch(p *kernels.Plan, d cut, launch func(to kernels.Ref, e epilogueArgs)) {
	partials := x.partials(d)
	if partials <= 1 {
		launch(x.c, x.epilogue.arguments(x.Dtype))
		return
	}
	sums := *x
	if x.added {
		sums.Batch = 1
	}
	partial := p.Workspace(partials * sums.elements() * x.size())
	launch(partial, epilogue{}.arguments(x.Dtype))
	sums.combine(p, partial, partials)
}

// partials returns how many sums another launch adds up for an element of C.
func (x *problem) partials(d cut) int64 {
	if x.added {
		return max(d.partials, 1) * x.Batch
	}
	return max(d.partials, 1)
}
