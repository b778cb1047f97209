package passes

import (
	"cmp"
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
	r := newRematerializer(p)
	for r.max() > most {
		v := r.choose()
		if v == nil {
			break
		}
		r.repeat(v)
	}
	r.finish()
}

// keptMax is in bytes. A step of GPT-2 124M in float32, batch 8 x 1024, uses 1.5 times as many if all values are kept.
const keptMax = 9 << 30

// launchBytes is what a launch takes besides its traffic, about 2 us, in bytes.
const launchBytes = 8 << 20

// rematerializer is the memory that a program uses, by instruction. A value that is computed again changes little of it, so it is measured once.
type rematerializer struct {
	p          *program.Program
	points     []*point // in order, without Aliases
	of         map[*program.Instr]*point
	readers    map[*program.Value][]*point         // that read a base, also through views
	last       map[*program.Value]*point           // of the readers of a base; the inputs of a ConcatInPlace are parts of its result
	kept       map[*program.Value]bool             // bases whose memory other values or later runs use
	ends       map[*program.Value]*point           // when a state is overwritten, nil if it is not
	candidates []*point                            // whose values may be computed again, the best first
	before     map[*program.Instr][]*program.Instr // instructions to insert before others
	peak       *point                              // with most bytes in use
}

// point is a program point: an instruction and the memory that is in use while it runs.
type point struct {
	in    *program.Instr
	at    int     // its index
	live  int64   // bytes of values
	own   int64   // bytes of its results
	score float64 // of a candidate: bytes of its result for each byte of the launch's traffic
}

func newRematerializer(p *program.Program) *rematerializer {
	r := &rematerializer{p: p, of: map[*program.Instr]*point{}, readers: map[*program.Value][]*point{}, last: map[*program.Value]*point{}, kept: map[*program.Value]bool{}, ends: map[*program.Value]*point{},
		before: map[*program.Instr][]*program.Instr{}}
	for _, in := range p.Instrs {
		if program.Is[program.Alias](in.Op) {
			continue
		}
		m := &point{in: in, at: len(r.points)}
		r.points, r.of[in] = append(r.points, m), m
		kept := isConcatInPlace(in) || isInPlace(in) || program.Is[program.Collective](in.Op)
		for _, v := range in.In {
			r.readers[v.Base] = append(r.readers[v.Base], m)
			r.kept[v.Base] = r.kept[v.Base] || kept
		}
	}
	for _, v := range p.Outputs {
		r.kept[v.Base] = true
	}
	next := map[*program.Value]bool{}
	for _, u := range p.Updates {
		r.kept[u.Next.Base], next[u.Next], r.ends[u.State] = true, u.Next != u.State, r.of[u.Next.Def]
	}
	for _, m := range slices.Backward(r.points) {
		for _, v := range m.in.In {
			to := m
			if isConcatInPlace(m.in) && r.last[m.in.Out[0]] != nil {
				to = r.last[m.in.Out[0]]
			}
			if last := r.last[v.Base]; last == nil || last.at < to.at {
				r.last[v.Base] = to
			}
		}
	}
	var live int64
	for _, in := range p.Setup {
		if op, state := in.Op.(program.State); state && op.Home == nil {
			live += in.Out[0].Bytes()
		}
	}
	dead := make([]int64, len(r.points)+1) // bytes that are not in use from an instruction on
	for i, m := range r.points {
		live -= dead[i]
		for _, v := range m.in.Out {
			if m.in.Plan == nil || next[v] { // the latter is in the memory of a state
				continue
			}
			m.own += v.Bytes()
			end := i
			if last := r.last[v]; last != nil {
				end = last.at
			}
			dead[end+1] += v.Bytes()
		}
		live += m.own
		m.live = live
		k, _ := m.in.Op.(program.Kernel)
		_, prepare := k.Planner.(gemm.Prepare)
		if _, split := k.Planner.(gemm.ConvSplit); m.in.Plan != nil && len(m.in.Out) == 1 && (prepare || split || program.Is[program.Map](m.in.Op)) {
			m.score = float64(m.in.Out[0].Bytes()) / float64(m.in.Traffic(m.in.Plan)+launchBytes)
			r.candidates = append(r.candidates, m)
		}
	}
	slices.SortFunc(r.candidates, better)
	return r
}

// better compares candidates.
func better(a, b *point) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.in.Out[0].Bytes(), a.in.Out[0].Bytes()), a.at-b.at)
}

// max sets peak and returns the bytes in use then.
func (r *rematerializer) max() (most int64) {
	for _, m := range r.points {
		if m.in.Plan == nil {
			continue
		}
		if use := m.live + m.in.Plan.Scratch; use > most {
			most, r.peak = use, m
		}
	}
	return most
}

// again returns the index in readers of the first instruction after the peak that reads a base, and false if the base is not kept over the peak, or for that.
func (r *rematerializer) again(base *program.Value) (first int, ok bool) {
	list := r.readers[base]
	k, at := r.find(base, r.peak)
	return k, k > 0 && k < len(list) && !at && !r.kept[base]
}

// find returns the index of a point in the readers of a base, or of the first one after it.
func (r *rematerializer) find(base *program.Value, m *point) (k int, found bool) {
	return slices.BinarySearchFunc(r.readers[base], m, func(a, b *point) int { return a.at - b.at })
}

// choose returns the value to compute again, or nil.
func (r *rematerializer) choose() *program.Value {
	for _, m := range r.candidates {
		if m.at >= r.peak.at {
			continue
		}
		v := m.in.Out[0]
		k, ok := r.again(v)
		if !ok {
			continue
		}
		first := r.readers[v][k]
		available := func(v *program.Value) bool {
			if end, state := r.ends[v.Base]; state {
				return end == nil || end.at > first.at
			}
			return r.of[v.Base.Def] == nil || r.last[v.Base].at >= first.at
		}
		if !slices.ContainsFunc(m.in.In, func(v *program.Value) bool { return !available(v) }) {
			return v
		}
	}
	return nil
}

// repeat computes a value again before the first instruction after the peak that reads it.
func (r *rematerializer) repeat(v *program.Value) {
	k, _ := r.again(v)
	from := r.of[v.Def]
	early, late := r.readers[v][:k:k], r.readers[v][k:]
	first := late[0]
	def := *v.Def
	def.In, def.Out = slices.Clone(def.In), nil
	to := r.p.NewValue(&def, v.Name, v.Type)
	m := &point{in: &def, at: first.at, live: first.live - first.own, own: from.own, score: from.score}
	r.of[&def] = m
	for _, other := range r.points[early[k-1].at+1 : first.at] {
		other.live -= v.Bytes()
	}
	r.points = slices.Insert(r.points, first.at, m)
	for _, other := range r.points[m.at+1:] {
		other.at++
	}
	at, _ := slices.BinarySearchFunc(r.candidates, m, better)
	r.candidates = slices.Insert(r.candidates, at, m)
	r.readers[v], r.readers[to] = early, late
	r.last[v], r.last[to] = early[k-1], r.last[v]
	for _, x := range def.In {
		at, _ := r.find(x.Base, m)
		r.readers[x.Base] = slices.Insert(r.readers[x.Base], at, m)
	}
	same, more := map[*program.Value]*program.Value{v: to}, []*program.Instr{&def}
	for _, reader := range late {
		for i, x := range reader.in.In {
			if x.Base != v {
				continue
			}
			if same[x] == nil {
				alias := &program.Instr{Op: program.Alias{}, In: []*program.Value{to}, Nodes: x.Def.Nodes}
				same[x], more = r.p.NewAlias(alias, x.Name, x.Type, to, x.View), append(more, alias)
			}
			reader.in.In[i] = same[x]
		}
	}
	r.before[first.in] = append(r.before[first.in], more...)
}

// finish inserts the new instructions.
func (r *rematerializer) finish() {
	if len(r.before) == 0 {
		return
	}
	instrs := r.p.Instrs
	r.p.Instrs = make([]*program.Instr, 0, len(r.points))
	var add func(in *program.Instr)
	add = func(in *program.Instr) {
		for _, b := range r.before[in] {
			add(b)
		}
		r.p.Instrs = append(r.p.Instrs, in)
	}
	for _, in := range instrs {
		add(in)
	}
}
