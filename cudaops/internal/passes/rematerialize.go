package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// rematerialize computes values a second time that would be kept in memory while most memory is in use, such as those of the forward pass that the
// backward pass reads. It changes programs that use more than keptMax bytes or an eighth of the device's memory, until they use less.
//
// Such a value is the result of a Map, or an operand in the form in which products read it, and is computed from values that are in memory
// anyway when it is read again. The same launch computes it again, so no bit changes. Values whose launches take the least time for each byte come first.
func rematerialize(p *program.Program, dev kernels.Device) {
	most := int64(keptMax)
	if dev.Memory > 0 { // it is not known of the host
		most = min(most, dev.Memory/8)
	}
	r := &rematerializer{p: p, at: map[*program.Instr]int{}, readers: map[*program.Value][]int{}, kept: map[*program.Value]bool{}, ends: map[*program.Value]int{}}
	for {
		if r.measure(); r.bytes <= most {
			return
		}
		v := r.choose()
		if v == nil {
			return
		}
		r.repeat(v)
	}
}

// keptMax is in bytes. A step of GPT-2 124M in float32, batch 8 x 1024, uses 1.5 times as many if all values are kept.
const keptMax = 9 << 30

// launchBytes is what a launch takes besides its traffic, about 2 us, in bytes.
const launchBytes = 8 << 20

// rematerializer is the memory that a program uses, by instruction.
type rematerializer struct {
	p       *program.Program
	at      map[*program.Instr]int   // its index; 0 for one of Setup
	readers map[*program.Value][]int // the indices of the instructions that read a base, also through views
	kept    map[*program.Value]bool  // bases whose memory other values or later runs use
	ends    map[*program.Value]int   // the instruction that overwrites a state
	peak    int                      // the instruction with most bytes in use
	bytes   int64
}

// measure measures the program as it is now. Each value that is computed again changes it, so memory of the last measurement is used.
func (r *rematerializer) measure() {
	p := r.p
	clear(r.at)
	clear(r.kept)
	clear(r.ends)
	for base, list := range r.readers {
		r.readers[base] = list[:0]
	}
	r.bytes, r.peak = 0, 0
	for i, in := range p.Instrs {
		r.at[in] = i
		if program.Is[program.Alias](in.Op) {
			continue
		}
		kept := isConcatInPlace(in) || isInPlace(in) || program.Is[program.Collective](in.Op)
		for _, v := range in.In {
			r.readers[v.Base] = append(r.readers[v.Base], i)
			if kept {
				r.kept[v.Base] = true
			}
		}
	}
	for _, v := range p.Outputs {
		r.kept[v.Base] = true
	}
	next := map[*program.Value]bool{}
	for _, u := range p.Updates {
		r.kept[u.Next.Base], next[u.Next], r.ends[u.State] = true, u.Next != u.State, r.at[u.Next.Def]
	}
	var live int64
	for _, in := range p.Setup {
		if op, state := in.Op.(program.State); state && op.Home == nil {
			live += in.Out[0].Bytes()
		}
	}
	dead := make([]int64, len(p.Instrs)+1) // bytes that are not in use from an instruction on
	for i, in := range p.Instrs {
		if live -= dead[i]; in.Plan == nil {
			continue
		}
		for _, v := range in.Out {
			if !next[v] { // others are in the memory of a state
				live += v.Bytes()
				dead[max(r.last(v), i)+1] += v.Bytes()
			}
		}
		if use := live + in.Plan.Scratch; use > r.bytes {
			r.bytes, r.peak = use, i
		}
	}
}

// last returns the index of the last instruction that reads a base, or 0. The inputs of a ConcatInPlace are parts of its result.
func (r *rematerializer) last(base *program.Value) (last int) {
	for _, i := range r.readers[base] {
		if last = max(last, i); isConcatInPlace(r.p.Instrs[i]) {
			last = max(last, r.last(r.p.Instrs[i].Out[0]))
		}
	}
	return last
}

// again returns the index of the first instruction after the peak that reads a base, and false if the base is not kept over the peak, or for that.
func (r *rematerializer) again(base *program.Value) (first int, ok bool) {
	list := r.readers[base]
	k, at := slices.BinarySearch(list, r.peak)
	if k == 0 || k == len(list) || at || r.kept[base] {
		return 0, false
	}
	return list[k], true
}

// choose returns the value to compute again, or nil.
func (r *rematerializer) choose() (best *program.Value) {
	most := 0. // bytes for each byte of the launch's traffic
	for _, in := range r.p.Instrs[:r.peak] {
		k, _ := in.Op.(program.Kernel)
		_, prepare := k.Planner.(gemm.Prepare)
		if _, split := k.Planner.(gemm.ConvSplit); in.Plan == nil || len(in.Out) != 1 || !prepare && !split && !program.Is[program.Map](in.Op) {
			continue
		}
		v := in.Out[0]
		first, ok := r.again(v)
		available := func(v *program.Value) bool {
			if end, state := r.ends[v.Base]; state {
				return end == 0 || end > first
			}
			_, computed := r.at[v.Base.Def]
			return !computed || r.last(v.Base) >= first
		}
		if !ok || slices.ContainsFunc(in.In, func(v *program.Value) bool { return !available(v) }) {
			continue
		}
		if score := float64(v.Bytes()) / float64(in.Traffic(in.Plan)+launchBytes); best == nil || score > most || score == most && v.Bytes() > best.Bytes() {
			best, most = v, score
		}
	}
	return best
}

// repeat computes a value again before the first instruction after the peak that reads it.
func (r *rematerializer) repeat(v *program.Value) {
	first, _ := r.again(v)
	def := *v.Def
	def.In, def.Out = slices.Clone(def.In), nil
	instrs, rest := r.p.Instrs[:first:first], r.p.Instrs[first:]
	r.p.Instrs = append(instrs, &def)
	same := map[*program.Value]*program.Value{v: r.p.NewValue(&def, v.Name, v.Type)}
	for _, in := range rest {
		if program.Is[program.Alias](in.Op) {
			continue
		}
		for i, x := range in.In {
			if x.Base != v {
				continue
			}
			if same[x] == nil {
				same[x] = r.p.EmitAlias(x.Def.Nodes, x.Name, x.Type, same[v], x.View)
			}
			in.In[i] = same[x]
		}
	}
	r.p.Instrs = append(r.p.Instrs, rest...)
}
