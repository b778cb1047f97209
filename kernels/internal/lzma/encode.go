package lzma

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Encode packs a text that continues the past, and returns the past of a text that continues this one. The same bytes give the same bytes.
// It is not safe for several goroutines.
func Encode(p *Past, text []byte) (packed []byte, after *Past) {
	after = new(Past)
	if p.finder == nil {
		p.finder = newFinder(p.text)
		p.finder.skip(len(p.text) - longMatch) // of later places, the finder would read beyond the text
	}
	*after = *p
	after.finder, after.text = nil, append(append(make([]byte, 0, len(p.text)+len(text)), p.text...), text...)
	e := &encoder{Past: after, finder: p.finder.of(after.text), span: 1<<32 - 1, pending: 1}
	e.finder.skip(len(p.text) - e.finder.at)
	for e.at = len(p.text); e.at < len(e.text); {
		e.block()
	}
	for range 5 {
		e.shift()
	}
	packed = binary.AppendUvarint(nil, uint64(len(text)))
	packed = append(packed, e.out[1:]...) // the first byte is 0
	for len(packed) > 1 && packed[len(packed)-1] == 0 {
		packed = packed[:len(packed)-1] // the decoder reads zeros beyond the end
	}
	return packed, after
}

// encoder is the past with the range coder of LZMA.
type encoder struct {
	*Past
	finder *finder
	at     int // up to here, the text is packed

	out     []byte
	low     uint64
	span    uint32
	cache   byte
	pending int // bytes that a carry may change

	asking bool   // for the price of bits, which are not packed
	sum    uint32 // the price

	nodes  [blockMax + 2*longMatch + 4]node
	prices prices
}

func (e *encoder) shift() {
	if uint32(e.low) < 0xff000000 || e.low>>32 != 0 {
		carry := byte(e.low >> 32)
		for ; e.pending > 0; e.pending-- {
			e.out = append(e.out, e.cache+carry)
			e.cache = 0xff
		}
		e.cache = byte(e.low >> 24)
	}
	e.pending++
	e.low = e.low << 8 & (1<<32 - 1)
}

// Prices are in units of 1/64 bit.
const unit = 64

var bitPrices = func() (list [1 << 10]uint32) {
	for i := range list {
		list[i] = uint32(-math.Log2((float64(i)+0.5)/float64(len(list)))*unit + 0.5)
	}
	return list
}()

func (p probability) price(b uint32) uint32 { return bitPrices[uint32(p>>22)^-b&(1<<10-1)] }

// priceOf returns the price of what a function packs, which is not packed.
func (e *encoder) priceOf(pack func()) uint32 {
	e.asking, e.sum = true, 0
	pack()
	e.asking = false
	return e.sum
}

func (e *encoder) bit(p *probability, b uint32) {
	if e.asking {
		e.sum += p.price(b)
		return
	}
	bound := p.bound(e.span)
	if b == 0 {
		e.span = bound
		p.learn0()
	} else {
		e.low += uint64(bound)
		e.span -= bound
		p.learn1()
	}
	e.fill()
}

// fill makes the range wide again.
func (e *encoder) fill() {
	for e.span < 1<<24 {
		e.span <<= 8
		e.shift()
	}
}

func (e *encoder) tree(p []probability, n int, v uint32) {
	e.reverse(p, n, bits.Reverse32(v)>>(32-n))
}

func (e *encoder) reverse(p []probability, n int, v uint32) {
	i := uint32(1)
	for k := range n {
		b := v >> k & 1
		e.bit(&p[i], b)
		i = i<<1 | b
	}
}

func (e *encoder) direct(n int, v uint32) {
	if e.asking {
		e.sum += uint32(n) * unit
		return
	}
	for k := n - 1; k >= 0; k-- {
		e.span >>= 1
		e.low += uint64(e.span * (v >> k & 1))
		e.fill()
	}
}

func (e *encoder) length(l *lengths, offset, length int) {
	n := length - minMatch
	if n < lowLengths {
		e.bit(&l.choice, 0)
		e.tree(l.low[offset][:], 3, uint32(n))
		return
	}
	e.bit(&l.choice, 1)
	if n -= lowLengths; n < lowLengths {
		e.bit(&l.choice2, 0)
		e.tree(l.mid[offset][:], 3, uint32(n))
		return
	}
	e.bit(&l.choice2, 1)
	n -= lowLengths
	e.tree(l.high[:], 8, uint32(min(n, 255)))
	if n >= 255 {
		n -= 254 // at least 1
		k := bits.Len(uint(n)) - 1
		for i := range k {
			e.bit(&l.extra[i], 1)
		}
		e.bit(&l.extra[k], 0)
		e.direct(k, uint32(n)-1<<k)
	}
}

func (e *encoder) distance(d uint32, length int) {
	slot := slotOf(d)
	e.tree(e.slot[lengthContext(length)][:], 6, uint32(slot))
	if slot < 4 {
		return
	}
	n := slot>>1 - 1
	base := (2 | uint32(slot)&1) << n
	if slot < lastSlot {
		e.reverse(e.special[base-uint32(slot):], n, d-base)
		return
	}
	e.direct(n-alignBits, (d-base)>>alignBits)
	e.reverse(e.align[:], alignBits, d&(1<<alignBits-1))
}

// Operations of a node: a literal, a match of one of the last distances, or a new distance.
const (
	literalOp = -1
	newOp     = 4 // and the distance less 1
)

// emit packs one operation. The length of a literal is 1.
func (e *encoder) emit(op, length int) {
	offset := e.offset(e.at)
	e.bit(&e.match[e.state][offset], uint32(min(op+1, 1)))
	switch {
	case op == literalOp:
		e.literalByte(e.at, e.state, e.reps[0])
	case op >= newOp:
		e.bit(&e.rep[e.state], 0)
		e.length(&e.lengthsNew, offset, length)
		e.distance(uint32(op-newOp), length)
	default:
		e.bit(&e.rep[e.state], 1)
		e.repChoice(op, e.state, offset, length)
		if length > 1 {
			e.length(&e.lengthsOfReps, offset, length)
		}
	}
	e.state, e.reps = next(e.state, e.reps, op, length)
	e.at += length
}

// repChoice packs which of the last distances a match has.
func (e *encoder) repChoice(op, state, offset, length int) {
	e.bit(&e.repG0[state], uint32(min(op, 1)))
	if op == 0 {
		e.bit(&e.repLong[state][offset], uint32(min(length-1, 1)))
		return
	}
	e.bit(&e.repG1[state], uint32(min(op-1, 1)))
	if op > 1 {
		e.bit(&e.repG2[state], uint32(op-2))
	}
}

// next returns state and distances after an operation.
func next(state int, r [4]uint32, op, length int) (int, [4]uint32) {
	switch {
	case op == literalOp:
		return afterLiteral(state), r
	case op >= newOp:
		return afterMatch(state), [4]uint32{uint32(op - newOp), r[0], r[1], r[2]}
	case length == 1:
		return afterShortRep(state), r
	}
	d := r[op]
	copy(r[1:], r[:op])
	r[0] = d
	return afterRep(state), r
}

// last returns the byte before an offset, 0 at the start.
func (e *encoder) last(at int) byte {
	if at == 0 {
		return 0
	}
	return e.text[at-1]
}

func (e *encoder) literalByte(at, state int, distance uint32) {
	p, v, same := e.literal(at, e.last(at)), uint32(e.text[at]), uint32(0)
	matched := state >= 7
	if matched {
		same = uint32(e.text[at-1-int(distance)])
	}
	i := uint32(1)
	for k := 7; k >= 0; k-- {
		b, expected := v>>k&1, same>>k&1
		if matched {
			e.bit(&p[(1+expected)<<8+i], b)
			matched = b == expected
		} else {
			e.bit(&p[i], b)
		}
		i = i<<1 | b
	}
}

const (
	blockMax  = 4096 // operations are chosen together up to that offset
	longMatch = 273  // a match of this length is taken without looking on
)

// prices are tables for the state of the model at the start of some block.
type prices struct {
	lengths [2][16][longMatch + 1]uint32 // of new matches, of reps
	near    [4][128]uint32               // distances
	slot    [4][slots]uint32             // the first distance of a slot, without its last bits
	align   [1 << alignBits]uint32
	until   int // the tables are renewed when the text is packed up to here
}

func (e *encoder) renewPrices() {
	t := &e.prices
	t.until = e.at + 512
	for k, l := range []*lengths{&e.lengthsNew, &e.lengthsOfReps} {
		for offset := range t.lengths[k] {
			for n := minMatch; n <= longMatch; n++ {
				if n == minMatch+2*lowLengths && offset > 0 { // longer ones have the same prices at all offsets
					copy(t.lengths[k][offset][n:], t.lengths[k][0][n:])
					break
				}
				t.lengths[k][offset][n] = e.priceOf(func() { e.length(l, offset, min(n, longMatch-1)) })
			}
		}
	}
	for v := range t.align {
		t.align[v] = e.priceOf(func() { e.reverse(e.align[:], alignBits, uint32(v)) })
	}
	for c := range t.slot {
		for s := lastSlot; s < slots; s++ {
			first := (2 | uint32(s)&1) << (s>>1 - 1)
			t.slot[c][s] = e.priceOf(func() { e.distance(first, minMatch+c) }) - t.align[0]
		}
		for d := range t.near[c] {
			t.near[c][d] = e.priceOf(func() { e.distance(uint32(d), minMatch+c) })
		}
	}
}

func (e *encoder) distancePrice(d uint32, length int) uint32 {
	c := lengthContext(length)
	if d < 128 {
		return e.prices.near[c][d]
	}
	return e.prices.slot[c][slotOf(d)] + e.prices.align[d&(1<<alignBits-1)]
}

func (e *encoder) literalPrice(at, state int, distance uint32) uint32 {
	return e.priceOf(func() { e.literalByte(at, state, distance) })
}

// repPrice is the price of the choice of a rep of more than one byte, without its length.
func (e *encoder) repPrice(op, state, offset int) uint32 {
	return e.priceOf(func() { e.repChoice(op, state, offset, minMatch) })
}

// node is the cheapest way to an offset of a block: an operation, and with a tail, then a literal and a match of the same distance.
type node struct {
	price      uint32
	from       int
	op, length int
	tail       int
	state      int
	reps       [4]uint32
}

// reach makes the way over node i the one to node to if it is cheaper.
func (e *encoder) reach(to int, n node, end *int) {
	for *end < to {
		*end++
		e.nodes[*end].price = math.MaxUint32
	}
	if n.price < e.nodes[to].price {
		e.nodes[to] = n
	}
}

// same returns how many bytes from at on, at most that many, equal those at a distance.
func (e *encoder) same(at int, distance uint32, most int) (n int) {
	from := at - 1 - int(distance)
	if from < 0 {
		return 0
	}
	most = min(most, len(e.text)-at)
	for n < most && e.text[from+n] == e.text[at+n] {
		n++
	}
	return n
}

// block chooses the operations of the next block and packs them.
func (e *encoder) block() {
	if e.at >= e.prices.until {
		e.renewPrices()
	}
	e.nodes[0] = node{state: e.state, reps: e.reps}
	end, start := 0, e.at
	for i := 0; ; i++ {
		at := start + i
		n := &e.nodes[i]
		if i > 0 {
			before := &e.nodes[n.from]
			n.state, n.reps = follow(before.state, before.reps, n)
		}
		if at == len(e.text) || i == blockMax || i > 0 && i == end {
			e.commit(i)
			return
		}
		matches := e.finder.find()
		best, op := 0, 0
		var sames [4]int
		for r, d := range n.reps {
			sames[r] = e.same(at, d, longMatch)
			if sames[r] > best {
				best, op = sames[r], r
			}
		}
		if len(matches) > 0 && best < longMatch {
			if m := matches[len(matches)-1]; m.length >= longMatch {
				best, op = m.length, newOp+int(m.distance)
			}
		}
		if best >= longMatch {
			distance := uint32(0)
			if op < newOp {
				distance = n.reps[op]
			} else {
				distance = uint32(op - newOp)
			}
			e.commit(i)
			length := e.same(at, distance, math.MaxInt)
			e.emit(op, length)
			e.finder.skip(length - 1)
			return
		}
		offset := e.offset(at)
		matchPrice := n.price + e.match[n.state][offset].price(1)
		repPrice := matchPrice + e.rep[n.state].price(1)
		newPrice := matchPrice + e.rep[n.state].price(0)
		literal := n.price + e.match[n.state][offset].price(0) + e.literalPrice(at, n.state, n.reps[0])
		e.reach(i+1, node{price: literal, from: i, op: literalOp, length: 1}, &end)
		if sames[0] > 0 {
			e.reach(i+1, node{price: repPrice + e.repG0[n.state].price(0) + e.repLong[n.state][offset].price(0), from: i, op: 0, length: 1}, &end)
		}
		if at+1 < len(e.text) && sames[0] == 0 {
			e.tail(i, literal, literalOp, 1, afterLiteral(n.state), n.reps[0], at+1, &end)
		}
		for r, longest := range sames {
			if longest < minMatch {
				continue
			}
			price := repPrice + e.repPrice(r, n.state, offset)
			for l := minMatch; l <= longest; l++ {
				e.reach(i+l, node{price: price + e.prices.lengths[1][offset][l], from: i, op: r, length: l}, &end)
			}
			e.afterMatch(i, price+e.prices.lengths[1][offset][longest], r, longest, afterRep(n.state), n.reps[r], &end)
		}
		l := minMatch
		for _, m := range matches {
			for ; l <= m.length; l++ {
				e.reach(i+l, node{price: newPrice + e.prices.lengths[0][offset][l] + e.distancePrice(m.distance, l), from: i, op: newOp + int(m.distance), length: l}, &end)
			}
			e.afterMatch(i, newPrice+e.prices.lengths[0][offset][m.length]+e.distancePrice(m.distance, m.length), newOp+int(m.distance), m.length, afterMatch(n.state), m.distance, &end)
		}
	}
}

// afterMatch reaches nodes by a match, a literal and a match of the same distance.
func (e *encoder) afterMatch(i int, price uint32, op, length, state int, distance uint32, end *int) {
	at := e.at + i + length
	if at+1 >= len(e.text) {
		return
	}
	price += e.match[state][e.offset(at)].price(0) + e.literalPrice(at, state, distance)
	e.tail(i, price, op, length, afterLiteral(state), distance, at+1, end)
}

// tail reaches nodes by a match of a distance after an operation and a literal.
func (e *encoder) tail(i int, price uint32, op, length, state int, distance uint32, at int, end *int) {
	n := e.same(at, distance, longMatch)
	if n < minMatch {
		return
	}
	offset := e.offset(at)
	price += e.match[state][offset].price(1) + e.rep[state].price(1) + e.repPrice(0, state, offset) + e.prices.lengths[1][offset][n]
	e.reach(at-e.at+n, node{price: price, from: i, op: op, length: length, tail: n}, end)
}

// follow returns state and distances after a node's operations.
func follow(state int, reps [4]uint32, n *node) (int, [4]uint32) {
	state, reps = next(state, reps, n.op, n.length)
	if n.tail > 0 {
		if n.op != literalOp {
			state = afterLiteral(state)
		}
		state = afterRep(state)
	}
	return state, reps
}

// commit packs the operations that lead to a node.
func (e *encoder) commit(i int) {
	var path []int
	for ; i > 0; i = e.nodes[i].from {
		path = append(path, i)
	}
	for k := len(path) - 1; k >= 0; k-- {
		n := e.nodes[path[k]]
		e.emit(n.op, n.length)
		if n.tail > 0 {
			if n.op != literalOp {
				e.emit(literalOp, 1)
			}
			e.emit(0, n.tail)
		}
	}
}
