package passes

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// place assigns a buffer to every value on the device, alive from its definition through its last use, and an offset in the
// arena or the target's workspace to every buffer without a Home. Later runs need the values of Setup, the double-buffered
// inputs and the zeros between the inputs of a ConcatInPlace, so these are always in the arena. A Map overwrites one of its inputs if no later instruction uses it. Updates overwrite
// their states, and inputs of a ConcatInPlace are computed within its buffer. Where that holds the results of an AllReduce, the values that it reduces are
// computed there, too, if nothing else reads them later. Other inputs of a collective stay until the next one begins: what is computed meanwhile
// would have to wait for the collective if it took their memory.
func place(p *program.Program, t Target) error {
	last, lasting := max(len(p.Instrs)-1, 0), map[*program.Buffer]bool{}
	buffer := func(size int64, birth, death int) *program.Buffer {
		b := &program.Buffer{Size: size, Birth: birth, Death: death}
		p.Buffers = append(p.Buffers, b)
		return b
	}
	for _, in := range p.Setup {
		for _, v := range in.Out {
			if v.Space != program.OnDevice || v.Base != v || v.IsIota() {
				continue
			}
			if s, ok := in.Op.(program.State); ok && s.Home != nil {
				v.Buffer = &program.Buffer{Home: s.Home, Offset: s.Offset, Size: v.Bytes(), Death: last}
			} else {
				v.Buffer = buffer(v.Bytes(), 0, last)
				lasting[v.Buffer] = true
			}
		}
	}
	for _, u := range p.Updates {
		u.Next.Buffer = u.State.Buffer
	}
	uses, places := lastUses(p), joined(p)
	written := writtenInPlace(p, uses, places)
	for at, in := range p.Instrs {
		for _, v := range in.Out {
			if from := written[v]; from != nil {
				v.Buffer = from.Buffer
			} else if to, ok := places[v]; ok { // the buffer of a ConcatInPlace is alive from its first input on
				whole := to.join.Buffer
				if whole == nil {
					whole = buffer(to.join.Bytes(), at, at)
					if to.join.Def.Op.(program.ConcatInPlace).Zeros {
						whole.Birth, whole.Death = 0, last
					}
					to.join.Buffer, lasting[whole] = whole, true
				}
				v.Buffer = buffer(v.Bytes(), at, at)
				v.Buffer.Parent, v.Buffer.Offset = whole, to.offset
			}
		}
		if v := overwrites(in, at, uses); v != nil && in.Out[0].Buffer == nil && !(t.Replay && isCopy(v.Def)) {
			in.Out[0].Buffer = v.Buffer
		}
		for _, v := range in.In {
			if b := v.Base.Buffer; b != nil {
				b.Death = max(b.Death, at)
				if b.Parent != nil {
					b.Parent.Death = max(b.Parent.Death, at)
				}
			}
		}
		for _, v := range in.Out {
			if v.Space == program.OnDevice && v.Base == v && v.Buffer == nil {
				v.Buffer = buffer(v.Bytes(), at, at)
				double := t.DoubleBufferMin > 0 && v.Bytes() > t.DoubleBufferMin && v.Bytes() <= doubleBufferMax && copiesInput(in)
				if double || isCopy(in) && t.Replay {
					v.Buffer.Birth, v.Buffer.Death = 0, last
				}
				if double {
					v.Buffer.Alternate = buffer(v.Bytes(), 0, last)
					lasting[v.Buffer], lasting[v.Buffer.Alternate] = true, true
				}
			}
		}
		if in.Plan != nil && in.Plan.Scratch > 0 {
			in.Scratch = buffer(in.Plan.Scratch, at, at)
		}
	}
	keepOperands(p)
	own := slices.DeleteFunc(slices.Clone(p.Buffers), func(b *program.Buffer) bool { return b.Parent != nil })
	p.Peak = livePeak(own)
	if t.Workspace != nil {
		shared := slices.DeleteFunc(slices.Clone(own), func(b *program.Buffer) bool { return lasting[b] })
		own = slices.DeleteFunc(own, func(b *program.Buffer) bool { return !lasting[b] })
		p.Workspace = pack(shared)
		home, err := t.Workspace(p.Workspace)
		if err != nil {
			return err
		}
		for _, b := range shared {
			b.Home = home
		}
	}
	p.Arena = pack(own)
	for _, b := range p.Buffers {
		if b.Parent != nil {
			b.Offset += b.Parent.Offset
		}
	}
	p.Stage = program.Placed
	return nil
}

// part is a value's byte offset in a ConcatInPlace.
type part struct {
	join   *program.Value
	offset int64
}

// joined returns the offsets of the inputs of every ConcatInPlace.
func joined(p *program.Program) map[*program.Value]part {
	places := map[*program.Value]part{}
	for _, in := range p.Instrs {
		if isConcatInPlace(in) {
			for i, at := range in.Offsets() {
				places[in.In[i]] = part{in.Out[0], at * in.Out[0].Dtype.Size()}
			}
		}
	}
	return places
}

// writtenInPlace returns the values over which an AllReduce or an op in place writes its results, by these, and gives them the places of the results.
func writtenInPlace(p *program.Program, uses map[*program.Value]int, places map[*program.Value]part) map[*program.Value]*program.Value {
	over := map[*program.Value]*program.Value{}
	for at, in := range slices.Backward(p.Instrs) {
		list := in.In
		if isInPlace(in) {
			list = in.In[:1]
		} else if c, ok := in.Op.(program.Collective); !ok || c.Kind != kernels.AllReduce {
			continue
		}
		for i, v := range list {
			base := v.Base
			_, placed := places[base]
			if to, ok := places[in.Out[i]]; ok && !placed && v.IsContiguous() && v.Elements() == base.Elements() && uses[base] == at && program.Launches(base.Def.Op) {
				places[base], over[in.Out[i]] = to, base
			}
		}
	}
	return over
}

// keepOperands keeps the inputs of a collective until the next collective.
func keepOperands(p *program.Program) {
	next := len(p.Instrs) - 1
	for at, in := range slices.Backward(p.Instrs) {
		if !program.Is[program.Collective](in.Op) {
			continue
		}
		for _, v := range in.In {
			if b := v.Base.Buffer; b.Parent != nil {
				b.Parent.Death = max(b.Parent.Death, next)
			} else if b.Home == nil {
				b.Death = max(b.Death, next)
			}
		}
		next = at
	}
}

func isConcatInPlace(in *program.Instr) bool { return program.Is[program.ConcatInPlace](in.Op) }

func isInPlace(in *program.Instr) bool {
	k, _ := in.Op.(program.Kernel)
	return k.InPlace
}

func isCopy(in *program.Instr) bool { return program.Is[program.Copy](in.Op) }

// doubleBufferMax is the size in bytes of the largest input that is double-buffered: for larger ones device memory is more
// likely to run out.
const doubleBufferMax = 512 << 20

// copiesInput reports whether an instruction copies an input of the program.
func copiesInput(in *program.Instr) bool {
	return isCopy(in) && program.Is[program.Input](in.In[0].Def.Op)
}

// lastUses returns the index of the last instruction that uses each base. Values of Setup and of states are used by the next run too. The
// inputs of a ConcatInPlace and its output all have the latest of their uses.
func lastUses(p *program.Program) map[*program.Value]int {
	last := map[*program.Value]int{}
	for at, in := range p.Instrs {
		for _, v := range in.In {
			last[v.Base] = at
		}
	}
	for _, in := range p.Instrs {
		if isConcatInPlace(in) {
			end := last[in.Out[0]]
			for _, v := range in.In {
				end = max(end, last[v])
			}
			for _, v := range append(slices.Clone(in.In), in.Out[0]) {
				last[v] = end
			}
		}
	}
	for _, in := range p.Setup {
		for _, v := range in.Out {
			last[v] = len(p.Instrs)
		}
	}
	for _, u := range p.Updates {
		last[u.Next] = len(p.Instrs)
	}
	return last
}

// overwrites returns the input that the output of a Map or of an op in place may overwrite, or nil. A Map must read the input element by element in
// the order of the output and be its last user. No other input may share that memory, as another view of the base or as
// an input or the output of a ConcatInPlace.
func overwrites(in *program.Instr, at int, uses map[*program.Value]int) *program.Value {
	if isInPlace(in) && uses[in.In[0].Base] == at {
		return in.In[0].Base
	}
	if !program.Elementwise(in.Op) || len(in.Out) != 1 {
		return nil
	}
	for i, v := range in.In {
		base := v.Base
		again := func(o *program.Value) bool {
			a, b := o.Base.Buffer, base.Buffer
			return o.Base == base || a != nil && b != nil && (a == b || a.Parent == b || b.Parent == a)
		}
		if uses[base] == at && !v.IsRandom() && base.Bytes() == in.Out[0].Bytes() && base.Dtype.Size() == in.Out[0].Dtype.Size() &&
			v.Elements() == base.Elements() && v.IsContiguous() && !slices.ContainsFunc(slices.Delete(slices.Clone(in.In), i, i+1), again) {
			return base
		}
	}
	return nil
}

// livePeak returns the maximum sum of padded sizes alive at once, a lower bound of the arena's size.
func livePeak(buffers []*program.Buffer) int64 {
	changes := map[int]int64{}
	for _, b := range buffers {
		changes[b.Birth] += b.Padded()
		changes[b.Death+1] -= b.Padded()
	}
	times := make([]int, 0, len(changes))
	for t := range changes {
		times = append(times, t)
	}
	slices.Sort(times)
	var live, peak int64
	for _, t := range times {
		live += changes[t]
		peak = max(peak, live)
	}
	return peak
}

// orders are the orders of buffers that pack tries first.
var orders = []func(a, b *program.Buffer) int{
	func(a, b *program.Buffer) int { return cmp.Compare(b.Padded(), a.Padded()) },
	func(a, b *program.Buffer) int { return cmp.Compare(area(b), area(a)) },
	func(a, b *program.Buffer) int { return cmp.Compare(b.Death-b.Birth, a.Death-a.Birth) },
	func(a, b *program.Buffer) int { return cmp.Compare(a.Birth, b.Birth) },
}

func area(b *program.Buffer) int64 { return b.Padded() * int64(b.Death-b.Birth+1) }

// pack assigns every buffer an offset so that no two that are alive at once
// overlap, and returns the bytes of the arena.
//
// The problem is NP-hard. Placing the largest buffer first at the lowest free
// offset mostly comes within a few percent of livePeak; where it does not, pack
// tries other orders and then random neighbours of the best order, until the
// arena is as small as the peak or the effort is spent. The random numbers have
// a fixed seed: one graph, one plan.
func pack(buffers []*program.Buffer) (arena int64) {
	work := slices.DeleteFunc(slices.Clone(buffers), func(b *program.Buffer) bool { return b.Size == 0 })
	if len(work) == 0 {
		return 0
	}
	peak := livePeak(work)
	best := int64(-1)
	var order []*program.Buffer
	offsets := make(map[*program.Buffer]int64, len(work))
	try := func(candidate []*program.Buffer) {
		size := fit(candidate)
		if best >= 0 && size >= best {
			return
		}
		best, order = size, slices.Clone(candidate)
		for _, b := range candidate {
			offsets[b] = b.Offset
		}
	}
	for _, less := range orders {
		if best == peak {
			break
		}
		candidate := slices.Clone(work)
		slices.SortStableFunc(candidate, less)
		try(candidate)
	}
	// Each try costs up to the square of the number of buffers; a plan within
	// 5 % is good enough.
	r := rand.New(rand.NewPCG(1, 2))
	for effort := int64(40_000_000); effort > 0 && best > peak+peak/20; effort -= int64(len(work)) * int64(len(work)) {
		candidate := slices.Clone(order)
		for range 1 + r.IntN(3) { // move a buffer forward
			from := r.IntN(len(candidate))
			b := candidate[from]
			to := r.IntN(from + 1)
			candidate = slices.Insert(slices.Delete(candidate, from, from+1), to, b)
		}
		try(candidate)
	}
	for b, offset := range offsets {
		b.Offset = offset
	}
	return best
}

// maxCompared is the maximum number of buffers that fit compares pairwise; for more it uses a timeline.
const maxCompared = 1000

// fit places the buffers in the given order, each at the lowest offset that is free during its life, and returns the bytes
// of the arena.
func fit(order []*program.Buffer) (arena int64) {
	if len(order) > maxCompared {
		return fitMany(order)
	}
	placed := make([]*program.Buffer, 0, len(order)) // by offset
	for _, b := range order {
		b.Offset = 0
		for _, p := range placed {
			if !b.Overlaps(p) {
				continue
			}
			if p.Offset >= b.Offset+b.Padded() {
				break // the gap before p is wide enough
			}
			b.Offset = max(b.Offset, p.Offset+p.Padded())
		}
		at, _ := slices.BinarySearchFunc(placed, b, func(p, b *program.Buffer) int { return cmp.Compare(p.Offset, b.Offset) })
		placed = slices.Insert(placed, at, b)
		arena = max(arena, b.Offset+b.Padded())
	}
	return arena
}

// fitMany is fit with a timeline. In a long run of buffers in the order of their births, such as all buffers of one size, it takes time proportional to the number of buffers.
func fitMany(order []*program.Buffer) (arena int64) {
	const minRun = 1.0 / 512 // of the instructions and the buffers before, which a run in order visits
	instrs := 0
	for _, b := range order {
		instrs = max(instrs, b.Death+1)
	}
	t := newTimeline(instrs)
	for from, to := 0, 0; from < len(order); from = to {
		for to = from + 1; to < len(order) && order[to-1].Birth <= order[to].Birth; {
			to++
		}
		t.rewind()
		sweeps := float64(to-from) > minRun*float64(instrs+from)
		for _, b := range order[from:to] {
			if sweeps {
				t.advance(b.Birth)
			}
			t.add(b)
			arena = max(arena, b.Offset+b.Padded())
		}
	}
	return arena
}
