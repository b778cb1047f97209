package lzma

import (
	"encoding/binary"
	"slices"
)

// match is an earlier place with the same bytes.
type match struct {
	length   int
	distance uint32 // less 1
}

// finder finds matches in a binary tree of earlier places for each hash of four bytes, ordered by the bytes that follow.
type finder struct {
	text       []byte
	at         int
	two, three []int32 // the last place with a hash of that many bytes
	roots      []int32
	sons       []int32 // two of each place
	found      []match
}

const (
	rootBits  = 18
	threeBits = 16
	maxDepth  = 400
)

func newFinder(text []byte) *finder {
	list := func(n int) []int32 {
		l := make([]int32, n)
		for i := range l {
			l[i] = -1
		}
		return l
	}
	return &finder{text: text, two: list(1 << 16), three: list(1 << threeBits), roots: list(1 << rootBits), sons: list(2 * len(text))}
}

// of returns a copy of the finder for a text that continues its own.
func (f *finder) of(text []byte) *finder {
	return &finder{text: text, at: f.at, two: slices.Clone(f.two), three: slices.Clone(f.three), roots: slices.Clone(f.roots),
		sons: append(make([]int32, 0, 2*len(text)), f.sons...)[:2*len(text)]}
}

// skip goes on by some places.
func (f *finder) skip(n int) {
	for range n {
		f.find()
	}
}

// find returns matches of the next place, the distance of each the smallest for its length, in order of length, of longMatch at most. It is valid until the next call.
func (f *finder) find() []match {
	f.found = f.found[:0]
	at := f.at
	f.at++
	most := min(len(f.text)-at, longMatch)
	if most < 4 {
		return nil
	}
	here := f.text[at:]
	best := 1
	v := binary.LittleEndian.Uint32(here)
	add := func(from int) {
		n := 0
		for n < most && f.text[from+n] == here[n] {
			n++
		}
		if n > best {
			best = n
			f.found = append(f.found, match{n, uint32(at - from - 1)})
		}
	}
	k2, k3 := v&0xffff, (v&0xffffff)*0x9E3779B1>>(32-threeBits)
	if p := f.two[k2]; p >= 0 {
		add(int(p))
	}
	if p := f.three[k3]; p >= 0 {
		add(int(p))
	}
	f.two[k2], f.three[k3] = int32(at), int32(at)
	root := &f.roots[v*0x9E3779B1>>(32-rootBits)]
	p := int(*root)
	*root = int32(at)
	lower, upper := &f.sons[2*at], &f.sons[2*at+1]
	lowerSame, upperSame := 0, 0
	for depth := 0; p >= 0 && depth < maxDepth; depth++ {
		n := min(lowerSame, upperSame)
		for n < most && f.text[p+n] == here[n] {
			n++
		}
		if n > best {
			best = n
			f.found = append(f.found, match{n, uint32(at - p - 1)})
		}
		if n == most {
			*lower, *upper = f.sons[2*p], f.sons[2*p+1]
			return f.found
		}
		if f.text[p+n] < here[n] {
			*lower = int32(p)
			lower = &f.sons[2*p+1]
			lowerSame = n
			p = int(*lower)
		} else {
			*upper = int32(p)
			upper = &f.sons[2*p]
			upperSame = n
			p = int(*upper)
		}
	}
	*lower, *upper = -1, -1
	return f.found
}
