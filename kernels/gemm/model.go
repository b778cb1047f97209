package gemm

import (
	"cmp"
	"math"
	"math/bits"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// rates are the constants of a kernel's predicted time, fitted to a sweep by TestFit. Times are in us on a device of referenceClock; an SM's
// unit of work is a term of K of a block's tile, or a multiply-add of kernels without tiles.
type rates struct {
	Start    float64 // a launch
	Block    float64 // each block of the busiest SM over those that are resident; without K slices each turn of these; each tile of blocks that stay
	Step     float64 // 1000 units of work of all blocks of an SM
	Alone    float64 // 1000 units of work of one block, which latency bounds
	Resident float64 // blocks of an SM
	Bytes    float64 // time of the operands and of C, by that of the memory's peak
	Reread   float64 // MB that tiles read once more
	Second   float64 // the launch that adds partial sums
	Copied   float64 // MB of partial sums
	Join     float64 // doubling of the parts that a cluster adds up, or another part of a tile by stream-K
	Prepare  float64 // MB of operands that are split or rounded before
	// Factors of Step and Alone for the operands that are transposed, and of C's bytes, or of Step and Alone of kernels without tiles, for a C that is.
	TN, NT, TT, TransC float64
	// Factors of Step and Alone, of Alone once more for each operand whose rows are not aligned, and of Bytes: see [problem.strays].
	Strayed, StrayedAlone, StrayedBytes float64
	Stream                              float64 // stream-K
	Finish                              float64 // an epilogue, by turns of resident blocks
	Load                                float64 // MB of matrices that an epilogue reads
}

// predictable reports whether the model knows a problem's device, [measured] rates are of kernels on 9.0, and its kernels: a product of two vectors is a sum.
func (x *problem) predictable() bool {
	return isHopper(x.dev) && min(x.Batch, x.M, x.N, x.K) > 0 && !x.dot()
}

// Those of an H200: multiply-adds of an SM a second, and bytes a second.
const (
	referenceClock     = 33.4e12 / 132
	referenceBandwidth = 4.81e12
)

// referenceTensor is the measured peak of an SM of an H200 in multiply-adds of mma.sync a second, of operands in BF16: 626 TFLOP/s of all 132, half of that in TF32.
const referenceTensor = 626e12 / 2 / 132

// referenceLanes are the multiply-adds of one of its SMs in a clock, by type.
var referenceLanes = [...]float64{kernels.Float32: 128, kernels.Float64: 64}

// formBytes are the bytes of an element by form.
var formBytes = [...]float64{TF32: 4, BF16: 2, F16: 2, BF16Split: 6}

// predictor predicts the times of the cuts of a problem by one candidate.
type predictor struct {
	c            *candidate
	x            *problem
	r            *rates
	clock        float64 // relative to referenceClock
	tiles, most  float64 // tiles of C, those of a cluster as one; blocks, or clusters, that run at once
	step, alone  float64 // us for a unit of work of all blocks of an SM, and of one block
	moved, fixed float64 // us to move the operands and C; us of launches that are the same for all cuts
	copied       float64 // us for each set of partial sums
	block        float64 // us for Block
	shared       float64 // us to read slices of B once more, which the blocks of a cluster share
	aligned      bool    // no operand strays
}

// of returns the predictor of a candidate for a problem, with what prepares operands that are not prepared, and with the epilogue if that is set.
func (r *rates) of(c *candidate, x *problem, epilogue bool) predictor {
	sms, memory := float64(x.dev.SMs), x.dev.Bandwidth
	facts, lanes := x.dev.Facts(), [2]float64{x.dev.FMALanes(kernels.Float32), x.dev.FMALanes(x.Dtype)}
	if x.dev.Calibration != (kernels.Calibration{}) {
		memory = facts.Bandwidth
	}
	memory = cmp.Or(memory, referenceBandwidth) / 1e6 // bytes in a us
	p := predictor{c: c, x: x, r: r, clock: cmp.Or(facts.FMAs/sms*(referenceLanes[kernels.Float32]/lanes[0]), referenceClock) / referenceClock, most: sms}
	if c.rounds && c.cluster > 2 {
		p.most = float64(x.clusters(c.cluster) * c.cluster)
	}
	batch, m, n, k, size := float64(x.Batch), float64(x.M), float64(x.N), float64(x.K), float64(x.size())
	work := 1e-3 / p.clock * (referenceLanes[x.Dtype] / lanes[1])
	if c.form != Plain && x.dev.Tensor > 0 {
		work = 1e-3 * referenceTensor * sms / x.dev.Tensor
	}
	switch {
	case x.A.Trans && x.B.Trans:
		work *= r.TT
	case x.A.Trans:
		work *= r.TN
	case x.B.Trans:
		work *= r.NT
	}
	if x.transC && c.m == 0 && x.N > 1 { // a column is a row as well
		work *= r.TransC
	}
	work *= c.share(x)
	p.step, p.alone = r.Step*work, r.Alone*work
	p.moves(memory)
	strays, strayed := x.strays(c)
	p.aligned = strays == 0
	p.step, p.alone = p.step*math.Pow(r.Strayed, strays), p.alone*math.Pow(r.Strayed*r.StrayedAlone, strays)
	p.block = r.Block / p.clock
	switch {
	case c.stays() && x.N%8 != 0: // sectors that are not whole
		p.block *= r.StrayedBytes
	case !c.stays() && strayed:
		p.moved *= r.StrayedBytes
	}
	p.fixed, p.copied = r.Start/p.clock, batch*m*n*size/1e6*r.Copied
	if epilogue = epilogue && x.HasEpilogue(); epilogue && c.apart {
		p.fixed += r.Second/p.clock + p.copied
	} else if epilogue {
		p.block += r.Finish / p.clock
		p.fixed += batch * m * n * float64(x.epilogueBytes()) / 1e6 * r.Load
	}
	if c.turns && x.B.Trans {
		p.fixed += r.Second/p.clock + batch*k*n*size/1e6*r.Prepare
	}
	if c.form != Plain {
		left, launches := 0., 0.
		for i, o := range x.Prepares(c.form) {
			if given := [2]Operand{x.A, x.B}[i].Form; given == Plain && !o.IsNoOp(x.dev) {
				left, launches = left+float64(o.Batch)*float64(o.Rows)*float64(o.Cols), 1
			}
		}
		p.fixed += launches*r.Start/p.clock + left*size/1e6*r.Prepare
	}
	return p
}

// moves sets the tiles, and the times to move operands and C at so many bytes a us.
func (p *predictor) moves(memory float64) {
	c, x, r := p.c, p.x, p.r
	batch, m, n, k, size := float64(x.Batch), float64(x.M), float64(x.N), float64(x.K), float64(x.size())
	stored, result := size, size // bytes of an element of an operand, as the kernel reads it; of C
	if c.form != Plain {
		stored = formBytes[c.form]
	}
	if x.C != Plain {
		result = 2
	}
	read, written := batch*(m*k+k*n)*stored, batch*m*n*result
	if x.transC && c.m > 0 {
		written *= r.TransC
	}
	if c.stays() { // a block stores C between tiles
		written = 0
	}
	p.moved = (read + written) / memory * r.Bytes
	if c.m > 0 && c.n > 0 {
		rows, columns := math.Ceil(m/float64(c.m)), math.Ceil(n/float64(c.n))
		p.tiles = batch * rows * columns
		again := p.tiles*k*float64(c.m+c.n)*stored - read
		p.moved += max(again, 0) / 1e6 * r.Reread
		if c.stays() {
			p.shared = min(max(again, 0), p.tiles*k*float64(c.n)*stored) / 1e6 * r.Reread
		}
	}
}

// stays reports whether a block of the kernel computes tiles one after the other, alone on its SM, and has nothing in flight between them.
func (c *candidate) stays() bool { return c.form == BF16Split && c.threads == hopperThreads }

// lowerBound returns a time in us that every cut takes: that of the work spread evenly.
func (p *predictor) lowerBound() float64 {
	work := 0.
	if p.tiles > 0 && !p.c.apart {
		work = p.tiles * float64(p.x.K) / float64(p.x.dev.SMs) * p.step
	}
	return p.fixed + max(work, p.moved-p.shared)
}

// time predicts the time in us of a cut.
func (p *predictor) time(d *cut) float64 {
	c, x, r := p.c, p.x, p.r
	k, cluster := float64(x.K), float64(max(d.cluster, 1))
	launched := float64(d.blocks) * cluster
	most := p.most
	if c.sized && c.m > 0 && c.n > 0 && d.parts > 2 { // some SMs have no cluster
		most = max(float64(x.clusters(d.parts)*d.parts), 1)
	} else if c.sized && c.m == 0 && d.parts == maxCluster {
		most *= joinedShare
	}
	busy, units := math.Ceil(launched/most), 0. // blocks of the busiest SM, and the work of each
	ends := 0.                                  // of tiles, of blocks that stay
	switch {
	case d.cluster > 0: // blocks that stay, of matmul_hopper.cu for split operands
		tiles, most := p.tiles, math.Floor(p.most/cluster)
		if cluster > 1 {
			tiles = float64(x.Batch * kernels.CeilDiv(x.M, c.m*d.cluster) * kernels.CeilDiv(x.N, c.n))
		}
		if busy, units = math.Ceil(tiles*float64(max(d.partials, 1))/most), float64(arith.RoundUp(d.chunk, c.step)); d.streamed > 0 {
			ends = math.Ceil(tiles / most)
			busy, units = 1, math.Ceil(float64(d.streamed)*k/float64(d.blocks))+(tiles-float64(d.streamed))/most*k
		}
	case d.chunk > 0 && c.copies == acrossK: // a term of a slice that is not whole takes longer
		terms := min(d.chunk, x.K)
		units = float64(terms) + 0.5*float64(terms%c.step)
	case d.chunk > 0 && c.m > 0 && (c.step > 0 || c.apart): // K may be shorter than the chunk
		units = float64(min(d.chunk, arith.RoundUp(x.K, max(c.step, 1))))
	case d.chunk > 0 && c.m > 0:
		units = float64(d.chunk)
	case c.m > 0 && c.n > 0 && d.each > 0: // panels
		units = float64(d.each) * k
	case c.m == 0 && c.n > 0 && d.parts > 0: // strips of columns that a cluster shares: threads without a column take as long
		units = k / float64(d.parts) * 16 * float64(c.n) / float64(x.size())
	case c.m == 0 && d.chunk > 0 && d.parts > 0 && d.each == 0: // rows as one array
		units = float64(d.chunk * x.M)
	case d.chunk > 0 && d.each == 0 && d.parts == 0: // strips of columns
		units = float64(d.chunk) * 1024 / float64(x.size())
	case d.work > 0:
		units = float64(d.work)
	default:
		units = float64(x.elements()) * max(k, 1) / launched
	}
	resident := max(math.Round(r.Resident), 1)
	switch {
	case c.stays():
		resident = 1
	case d.shared > 0:
		resident = min(resident, max(math.Floor(float64(x.dev.SharedOptin)/float64(c.shared+d.shared+1<<10)), 1))
	}
	turns := math.Ceil(busy / resident)
	alone, moved := p.alone, p.moved
	if d.cluster > 1 {
		moved -= p.shared * (1 - 1/cluster)
	}
	if p.aligned && d.parts > 1 && d.chunk*x.size()%16 != 0 && (!x.A.Trans || x.B.Trans) {
		alone, units = alone*r.StrayedAlone, units*r.Strayed
	}
	latency := units
	if d.alone > 0 {
		latency = float64(d.alone)
	}
	work, waits, begins := busy*p.step*units, turns*alone*latency, max(turns, ends)
	if c.step > 0 && c.form == Plain { // slices wait for memory, and the more blocks an SM has the later the last one begins
		moved, begins = math.Hypot(waits, moved), 1+(busy-1)/resident
	} else {
		work = max(work, waits)
	}
	work, moved = work*work, moved*moved
	us := p.fixed + begins*p.block + math.Sqrt(math.Sqrt(work*work+moved*moved))
	if d.partials > 1 {
		us += r.Second/p.clock + float64(d.partials)*p.copied
	}
	if d.parts > 1 {
		us += r.Join * float64(bits.Len64(uint64(d.parts-1))) / p.clock
	}
	if d.streamed > 0 {
		us += (r.Stream + r.Join*float64(max(d.blocks/d.streamed, 1)-1)) / p.clock
	}
	return us
}

// strays counts the operands that a kernel would copy by 16 bytes if their rows began at multiples of 16 bytes; kernels without K slices, and those that read a form, count one at most.
// It also reports whether rows of C, or for kernels without K slices of an operand, are not aligned, or are short stores of matmul_tall.cu.
func (x *problem) strays(c *candidate) (operands float64, moved bool) {
	w := 16 / x.size()
	rowA, rowB := x.K, x.N
	if x.A.Trans {
		rowA = x.M
	}
	if x.B.Trans {
		rowB = x.K
	}
	if rowA%w != 0 && (c.copies == rows || c.copies == acrossK && x.A.Trans) {
		operands++
	}
	if rowB%w != 0 && (c.copies == rows || c.copies == acrossK && !x.B.Trans) {
		operands++
	}
	switch {
	case c.copies == elements:
		return 0, x.transC && x.N > shortStores && c.threads == 0 // stored as matmul_tall.cu does
	case c.step == 0 || c.form != Plain:
		return min(operands, 1), operands > 0
	case x.transC:
		return operands, x.M%w != 0
	}
	return operands, x.N%w != 0
}

// epilogueBytes counts the bytes of an epilogue's operands for an element of C; a row or a column has none.
func (x *problem) epilogueBytes() (bytes int64) {
	for i, v := range x.epilogue.operands {
		if v.Strides[1] != 0 && v.Strides[2] != 0 {
			bytes += x.epilogue.dtype(i, x.Dtype).Size()
		}
	}
	return bytes
}

// choiceKey is what a choice depends on.
type choiceKey struct {
	dev              kernels.Device
	dtype            kernels.Dtype
	batch, m, n, k   int64
	a, b             Operand
	round            kernels.Precision
	read, c, also    Form
	epilogue, halves bool
	reads            int64
}

type choice struct {
	c *candidate // nil: there is none
	d cut
}

// maxChoices bounds the choices that are kept.
const maxChoices = 1 << 12

var choices = struct {
	sync.Mutex
	by map[choiceKey]choice
}{by: map[choiceKey]choice{}}

// fastest returns the candidate of the least predicted time that reads operands in a form, or of all.
func (x problem) fastest(read Form) (best *candidate, as problem, d cut) {
	key := choiceKey{x.dev, x.Dtype, x.Batch, x.M, x.N, x.K, x.A, x.B, x.Round, read, x.C, x.Also, x.HasEpilogue(), x.halves(), x.epilogueBytes()}
	choices.Lock()
	got, ok := choices.by[key]
	choices.Unlock()
	if !ok {
		if got = x.exception(read); got.c == nil {
			got = x.search(read)
		}
		choices.Lock()
		if len(choices.by) >= maxChoices {
			clear(choices.by)
		}
		choices.by[key] = got
		choices.Unlock()
	}
	if got.c == nil {
		return nil, x, d
	}
	return got.c, got.c.oriented(x), got.d
}

// room is memory for a search.
type room struct {
	one  candidate
	list []cut
}

// rooms are those that no search uses.
var rooms struct {
	sync.Mutex
	list []*room
}

func newRoom() *room {
	rooms.Lock()
	defer rooms.Unlock()
	n := len(rooms.list)
	if n == 0 {
		return new(room)
	}
	r := rooms.list[n-1]
	rooms.list = rooms.list[:n-1]
	return r
}

func (r *room) free() {
	rooms.Lock()
	defer rooms.Unlock()
	rooms.list = append(rooms.list, r)
}

// search compares all candidates. An epilogue leaves the choice as it is without one, so that it does not change the bits of a product; where that is a
// kernel without epilogues, tiles that sum as it does are compared. A product that stores 16 bits has a choice of its own.
func (x *problem) search(read Form) (best choice) {
	least, unsliced := math.Inf(1), false
	if x.HasEpilogue() && !x.halves() {
		alone := *x
		alone.epilogue = epilogue{}
		c, _, _ := alone.fastest(read)
		unsliced = c != nil && c.able.plain
	}
	room := newRoom()
	defer room.free()
	x.each(read, func(c *candidate, as *problem) {
		if unsliced && c.slices != 1 {
			return
		}
		if c.rates[0] == nil { // the limits of each decide
			if d, _ := c.cut(c, as); c.launchable(as, d) {
				best, least = choice{c, d}, 0
			}
			return
		}
		p := [2]predictor{c.rates[0].of(c, as, x.halves())}
		lower := p[0].lowerBound()
		if c.rates[1] != nil {
			p[1] = c.rates[1].of(c, as, x.halves())
			lower = min(lower, p[1].lowerBound())
		}
		if lower >= least {
			return
		}
		room.list = c.cuts(as, &room.one, room.list[:0])
		for i := range room.list {
			d := &room.list[i]
			if unsliced && max(d.partials, d.parts) > 1 {
				continue
			}
			if us := p[c.rateOf(d)].time(d); us < least*(1-1e-9) && c.launchable(as, *d) { // not by what compilers round otherwise
				best, least = choice{c, *d}, us
			}
		}
	})
	return best
}

// rateOf returns the index of the rates of a cut.
func (c *candidate) rateOf(d *cut) int {
	if c.rates[1] != nil && d.parts > 1 {
		return 1
	}
	return 0
}

// withRates returns the candidates with their rates on 9.0.
func withRates(table [][]*candidate) [][]*candidate {
	for _, group := range table {
		for i := range group {
			for joined := range group[i].rates {
				if r, ok := measured[group[i].rateName(joined)]; ok {
					group[i].rates[joined] = &r
				}
			}
		}
	}
	return table
}

// rateName returns the name of a kernel's rates, and of those of its clusters that add up parts of K, if they are another kernel. Those of F16 are those of BF16.
func (c *candidate) rateName(joined int) string {
	name := strings.Replace(c.name, "_f16", "_bf16", 1)
	switch {
	case joined == 0:
		return name
	case c.joined == nil && !c.divides():
		return ""
	}
	return "joined_" + name
}
