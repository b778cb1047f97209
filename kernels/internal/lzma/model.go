// Package lzma compresses kernels, in a variant of LZMA. Its probabilities, of 22 bits, learn faster at first, and a match has no max length. In the
// machine code of kernels, with instructions of 16 bytes, contexts depend on the offset in the instruction.
package lzma

import "math/bits"

// Kind is the kind of a text, which decides on what contexts of probabilities depend.
type Kind uint8

// Kinds of texts.
const (
	Code Kind = iota // cubins: contexts depend on the offset modulo 16
	Text             // contexts of a byte depend on the last one
)

// probability of a bit that is 0: 22 bits, and 10 bits that count the bits seen, at most those of rates.
type probability uint32

const (
	half     = 1 << 31
	topBits  = 22
	maxCount = len(rates) - 1
)

// rates are, by the number of bits seen, the shifts of the difference that is learned from the next bit.
var rates = [...]uint8{1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5}

// learn0 moves the probability towards a bit 0, learn1 towards 1.
func (p *probability) learn0() {
	n := *p & 1023
	v := *p >> 10
	v += (1<<topBits - v) >> rates[n]
	*p = min(v, 1<<topBits-1<<topMargin)<<10 | min(n+1, probability(maxCount))
}

func (p *probability) learn1() {
	n := *p & 1023
	v := *p >> 10
	v -= v >> rates[n]
	*p = max(v, 1<<topMargin)<<10 | min(n+1, probability(maxCount))
}

// topMargin keeps probabilities from 0 and 1: the range coder uses the upper 12 bits.
const topMargin = topBits - 12

// bound splits the range of the coder.
func (p probability) bound(span uint32) uint32 { return span >> 12 * uint32(p>>(32-12)) }

const (
	states     = 12
	minMatch   = 2
	lowLengths = 8
	slots      = 64
	alignBits  = 4
	lastSlot   = 14 // distances of this slot and higher ones have direct bits
)

// lengths are the probabilities of the length of a match, from minMatch on.
type lengths struct {
	choice, choice2 probability
	low, mid        [16][lowLengths]probability
	high            [256]probability
	extra           [2 * 32]probability
}

// model is the state that coder and decoder share.
type model struct {
	match, repLong            [states][16]probability
	rep, repG0, repG1, repG2  [states]probability
	literals                  [16][3 * 256]probability
	slot                      [4][slots]probability
	special                   [128]probability
	align                     [1 << alignBits]probability
	lengthsNew, lengthsOfReps lengths
	kind                      Kind
}

// Past is what a text continues: the text before it, which matches may reach into, and the model that was learned from it.
type Past struct {
	model
	text  []byte
	state int
	reps  [4]uint32 // distances less 1

	finder *finder // of the text, once a text that continues it was packed
}

// Start returns the past of a first text.
func Start(kind Kind) *Past {
	p := &Past{model: model{kind: kind}}
	m := &p.model
	each := func(all ...[]probability) {
		for _, list := range all {
			for i := range list {
				list[i] = half
			}
		}
	}
	for i := range m.match {
		each(m.match[i][:], m.repLong[i][:])
	}
	for i := range m.literals {
		each(m.literals[i][:])
	}
	for i := range m.slot {
		each(m.slot[i][:])
	}
	each(m.rep[:], m.repG0[:], m.repG1[:], m.repG2[:], m.special[:], m.align[:])
	for _, l := range []*lengths{&m.lengthsNew, &m.lengthsOfReps} {
		l.choice, l.choice2 = half, half
		for i := range l.low {
			each(l.low[i][:], l.mid[i][:])
		}
		each(l.high[:], l.extra[:])
	}
	return p
}

// offset returns the context of an offset.
func (m *model) offset(at int) int {
	if m.kind == Code {
		return at & 15
	}
	return 0
}

// literal returns the context of a literal.
func (m *model) literal(at int, last byte) *[3 * 256]probability {
	if m.kind == Code {
		return &m.literals[at&15]
	}
	return &m.literals[last>>4]
}

// States remember the last operations: below 7, the last one was a literal.
func afterLiteral(s int) int {
	switch {
	case s < 4:
		return 0
	case s < 10:
		return s - 3
	}
	return s - 6
}

func after(s, literal, other int) int {
	if s < 7 {
		return literal
	}
	return other
}

func afterMatch(s int) int    { return after(s, 7, 10) }
func afterRep(s int) int      { return after(s, 8, 11) }
func afterShortRep(s int) int { return after(s, 9, 11) }

// slotOf returns the slot of a distance less 1, which is its number of bits and the bit after the first.
func slotOf(d uint32) int {
	if d < 4 {
		return int(d)
	}
	n := bits.Len32(d) - 1
	return 2*n | int(d>>(n-1)&1)
}

func lengthContext(length int) int { return min(length-minMatch, 3) }
