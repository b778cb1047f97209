package lzma

import (
	"encoding/binary"
	"errors"
)

var errDamaged = errors.New("the packed bytes are damaged")

// maxText bounds the memory that damaged bytes can ask for.
const maxText = 1 << 28

// Decode returns the text that Encode packed, and the past of a text that continues it. It returns an error, or other bytes, for damaged ones: the
// caller has a checksum. It is safe for several goroutines.
func (p *Past) Decode(packed []byte) (text []byte, after *Past, err error) {
	size, n := binary.Uvarint(packed)
	if n <= 0 || size > maxText {
		return nil, nil, errDamaged
	}
	after = new(Past)
	*after = *p
	after.finder = nil
	d := decoder{Past: after, in: packed[n:], span: 1<<32 - 1}
	for range 4 {
		d.code = d.code<<8 | uint32(d.next())
	}
	after.text = append(make([]byte, 0, len(p.text)+int(size)), p.text...)
	if err := d.decode(); err != nil {
		return nil, nil, err
	}
	return after.text[len(p.text):], after, nil
}

type decoder struct {
	*Past
	in         []byte
	at         int
	span, code uint32
}

func (d *decoder) next() byte {
	if d.at++; d.at > len(d.in) {
		return 0
	}
	return d.in[d.at-1]
}

// bit decodes a bit.
func (d *decoder) bit(p *probability) uint32 {
	for d.span < 1<<24 {
		d.span <<= 8
		d.code = d.code<<8 | uint32(d.next())
	}
	bound := p.bound(d.span)
	if d.code < bound {
		d.span = bound
		p.learn0()
		return 0
	}
	d.code -= bound
	d.span -= bound
	p.learn1()
	return 1
}

// tree decodes a number of some bits, the highest one first.
func (d *decoder) tree(p []probability, n int) uint32 {
	i := uint32(1)
	for range n {
		i = i<<1 | d.bit(&p[i])
	}
	return i - 1<<n
}

// reverse is tree, the lowest bit first.
func (d *decoder) reverse(p []probability, n int) (v uint32) {
	i := uint32(1)
	for k := range n {
		b := d.bit(&p[i])
		i = i<<1 | b
		v |= b << k
	}
	return v
}

// direct decodes bits that are 0 or 1 with the same probability.
func (d *decoder) direct(n int) (v uint32) {
	for range n {
		for d.span < 1<<24 {
			d.span <<= 8
			d.code = d.code<<8 | uint32(d.next())
		}
		d.span >>= 1
		v <<= 1
		if d.code >= d.span {
			d.code -= d.span
			v |= 1
		}
	}
	return v
}

func (d *decoder) length(l *lengths, offset int) int {
	switch {
	case d.bit(&l.choice) == 0:
		return minMatch + int(d.tree(l.low[offset][:], 3))
	case d.bit(&l.choice2) == 0:
		return minMatch + lowLengths + int(d.tree(l.mid[offset][:], 3))
	}
	n := int(d.tree(l.high[:], 8))
	if n == 255 { // the number of further bits, and these
		k := 0
		for k < 31 && d.bit(&l.extra[k]) == 1 {
			k++
		}
		n += int(d.direct(k)) + 1<<k - 1
	}
	return minMatch + 2*lowLengths + n
}

// distance decodes a distance less 1.
func (d *decoder) distance(length int) uint32 {
	slot := int(d.tree(d.slot[lengthContext(length)][:], 6))
	if slot < 4 {
		return uint32(slot)
	}
	n := slot>>1 - 1
	base := (2 | uint32(slot)&1) << n
	if slot < lastSlot {
		return base + d.reverse(d.special[base-uint32(slot):], n)
	}
	return base + d.direct(n-alignBits)<<alignBits + d.reverse(d.align[:], alignBits)
}

// decode appends to the text until it is full.
func (d *decoder) decode() error {
	out, reps, state := d.text, d.reps, d.state
	for len(out) < cap(out) {
		at := len(out)
		offset := d.offset(at)
		if d.bit(&d.match[state][offset]) == 0 {
			var last byte
			if at > 0 {
				last = out[at-1]
			}
			p := d.literal(at, last)
			i := uint32(1)
			if state >= 7 && int(reps[0]) < at {
				same := uint32(out[at-1-int(reps[0])])
				for i < 256 {
					expected := same >> 7 & 1
					same <<= 1
					b := d.bit(&p[(1+expected)<<8+i])
					i = i<<1 | b
					if b != expected {
						break
					}
				}
			}
			for i < 256 {
				i = i<<1 | d.bit(&p[i])
			}
			out = append(out, byte(i))
			state = afterLiteral(state)
			continue
		}
		length := 1
		if d.bit(&d.rep[state]) == 0 {
			length = d.length(&d.lengthsNew, offset)
			reps = [4]uint32{d.distance(length), reps[0], reps[1], reps[2]}
			state = afterMatch(state)
		} else {
			switch {
			case d.bit(&d.repG0[state]) == 0:
				if d.bit(&d.repLong[state][offset]) == 0 {
					state = afterShortRep(state)
					break
				}
				length = 0
			case d.bit(&d.repG1[state]) == 0:
				reps[0], reps[1] = reps[1], reps[0]
				length = 0
			case d.bit(&d.repG2[state]) == 0:
				reps = [4]uint32{reps[2], reps[0], reps[1], reps[3]}
				length = 0
			default:
				reps = [4]uint32{reps[3], reps[0], reps[1], reps[2]}
				length = 0
			}
			if length == 0 {
				length = d.length(&d.lengthsOfReps, offset)
				state = afterRep(state)
			}
		}
		from := at - 1 - int(reps[0])
		if from < 0 || length > cap(out)-at {
			return errDamaged
		}
		out = out[:at+length]
		for k := at; k < len(out); { // the source may reach into what is copied
			k += copy(out[k:], out[from:k])
		}
	}
	d.text, d.reps, d.state = out, reps, state
	return nil
}
