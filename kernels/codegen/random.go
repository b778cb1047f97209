package codegen

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/philox"
)

// Random numbers of views with a stream: Philox4x32-10 (Salmon and others, 2011), whose block number b of four words is a function of the seed, the
// run and the stream. A float32 has the upper 24 bits of a word of its own, a float64 the upper 53 of two words, so that either is less than 1 and
// the same on every device.

// RandomState is the elements of the buffer of a view with a stream, int64 each: the seed, and the number of the run, of which 32 bits count.
const RandomState = 2

// generator makes the numbers of a stream.
type generator struct {
	key         [2]uint32
	stream, run uint32
	normal      bool
}

// newGenerator returns the generator of a stream in a state.
func newGenerator(state []byte, stream Stream) generator {
	s := kernels.Elements[int64](state)
	return generator{[2]uint32{uint32(s[0]), uint32(s[0] >> 32)}, uint32(stream.Number), uint32(s[1]), stream.Normal}
}

// block returns a block of words.
func (g generator) block(number uint64) [4]uint32 {
	return philox.Block(g.key, g.stream, g.run, number)
}

// fill writes n numbers of the stream, from one on in a stride, to elements of that type from to[at] on.
func (g generator) fill(d expr.Dtype, to []byte, at, number, stride, n int64) {
	known, words := int64(-1), [4]uint32{}
	for k := range n {
		i := number + k*stride
		b := i / perBlock(d)
		if b != known {
			known, words = b, g.block(uint64(b))
		}
		if g.normal {
			kernels.Elements[float32](to)[at+k] = normals(words[i%4/2*2], words[i%4/2*2+1])[i%2]
		} else if d == expr.Float32 {
			kernels.Elements[float32](to)[at+k] = fraction32(words[i%4])
		} else {
			kernels.Elements[float64](to)[at+k] = fraction64(words[i%2*2], words[i%2*2+1])
		}
	}
}

// fraction32 returns the float32 of a word, fraction64 the float64 of two.
func fraction32(word uint32) float32 { return float32(word>>8) * 0x1p-24 }

func fraction64(lower, upper uint32) float64 {
	return float64((uint64(upper)<<32|uint64(lower))>>11) * 0x1p-53
}

// perBlock returns the number of elements that a block generates.
func perBlock(d expr.Dtype) int64 { return 16 / d.Size() }

// checkRandom reports whether a view with a stream is one of random numbers.
func (v View) checkRandom(d expr.Dtype) error {
	switch {
	case !d.IsFloat():
		return fmt.Errorf("got random numbers of %v, want f32 or f64", d)
	case v.Elements != RandomState:
		return fmt.Errorf("got a state of %d elements, want %d", v.Elements, RandomState)
	case v.Stream.Normal && d != expr.Float32:
		return fmt.Errorf("got normal numbers of %v, want f32", d)
	case v.Offset < 0 || v.Stream.Number < 0:
		return fmt.Errorf("got numbers from %d on of stream %d, want neither below 0", v.Offset, v.Stream.Number)
	case v.Bounds.To != 0:
		return fmt.Errorf("got bounds %+v of random numbers, want none", v.Bounds)
	}
	return nil
}

// inputBytes returns the size of the buffer of an operand of that type.
func (v View) inputBytes(d expr.Dtype) int64 {
	if v.Stream.Number != 0 {
		d = expr.Int64
	}
	return v.Elements * d.Size()
}

// source is a generator in a kernel.
type source struct {
	first, key0, key1, stream, run string
	normal                         bool
}

// source adds the parameters of an operand with a stream whose state is at an address.
func (w *codeWriter) source(state string, normal bool) *source {
	s := &source{first: w.parameter("u64", expr.B64), stream: w.parameter("u32", expr.B32), normal: normal}
	seed, run := w.Register(expr.B64), w.Register(expr.B64)
	w.gridDependencyWait()
	w.Line("ld.global.u64 %s, [%s]", seed, state)
	w.Line("ld.global.u64 %s, [%s+8]", run, state)
	s.key0, s.key1 = w.halves(seed)
	s.run, _ = w.halves(run)
	return s
}

// halves returns the lower and the upper half of a register of 64 bits.
func (w *codeWriter) halves(r string) (lower, upper string) {
	lower, upper = w.Register(expr.B32), w.Register(expr.B32)
	w.Line("mov.b64 {%s, %s}, %s", lower, upper, r)
	return lower, upper
}

// philox returns a block of words, given its number, of 64 bits.
func (w *codeWriter) philox(s *source, number string) [4]string {
	c := [4]string{2: s.stream, 3: s.run}
	c[0], c[1] = w.halves(number)
	key0, key1 := s.key0, s.key1
	product := func(x string, n uint32) (lower, upper string) {
		return w.halves(w.result(expr.B64, "mul.wide.u32 %s, %s, 0x%X", x, n))
	}
	differ := func(x, y, z string) string { return w.result(expr.B32, "lop3.b32 %s, %s, %s, %s, 0x96", x, y, z) } // x ^ y ^ z
	for round := range philox.Rounds {
		if round > 0 {
			w0, w1 := uint32(philox.W0), uint32(philox.W1)
			key0, key1 = w.result(expr.B32, "add.u32 %s, %s, %d", key0, int32(w0)), w.result(expr.B32, "add.u32 %s, %s, %d", key1, int32(w1))
		}
		lo0, hi0 := product(c[0], philox.M0)
		lo1, hi1 := product(c[2], philox.M1)
		c = [4]string{differ(hi1, c[1], key0), lo1, differ(hi0, c[3], key1), lo0}
	}
	return c
}

// numbers returns elements from a number on, which is in a register of 64 bits; aligned reports that this number is the first of a block.
func (w *codeWriter) numbers(s *source, d expr.Dtype, number string, elements int, aligned bool) []string {
	var list []string
	per := int(perBlock(d))
	for k := 0; k < elements; {
		at := w.result(expr.B64, "add.u64 %s, %s, %d", number, k)
		lower, _ := w.halves(at)
		w.Line("shr.u64 %s, %s, %d", at, at, map[int]int{4: 2, 2: 1}[per])
		words := w.philox(s, at)
		switch {
		case s.normal && aligned:
			first, second := w.normals(words[0], words[1]), w.normals(words[2], words[3])
			list = append(list, first[0], first[1], second[0], second[1])[:min(len(list)+per, elements)]
		case s.normal:
			pair := w.normals(w.one(lower, 2, words[0], words[2]), w.one(lower, 2, words[1], words[3]))
			list = append(list, w.one(lower, 1, pair[0], pair[1]))
		case aligned:
			for lane := 0; lane < min(per, elements-k); lane++ {
				list = append(list, w.fraction(d, words[lane*4/per:]))
			}
		default:
			list = append(list, w.fraction(d, w.choose(words, lower, per)))
		}
		k = len(list)
	}
	return list
}

// one returns the second of two words if a bit of a number is set, else the first.
func (w *codeWriter) one(number string, bit int, first, second string) string {
	masked := w.result(expr.B32, "and.b32 %s, %s, %d", number, bit)
	set := w.result(expr.Pred, "setp.ne.u32 %s, %s, 0", masked)
	return w.result(expr.B32, "selp.b32 %s, %s, %s, %s", second, first, set)
}

// choose returns the words of an element in its block of `per` elements, given the lower half of its number.
func (w *codeWriter) choose(words [4]string, number string, per int) []string {
	for step := 1; step < per; step *= 2 {
		bit := w.result(expr.B32, "and.b32 %s, %s, %d", number, per/2/step)
		odd := w.result(expr.Pred, "setp.ne.u32 %s, %s, 0", bit)
		for k := range 2 / step {
			words[k] = w.result(expr.B32, "selp.b32 %s, %s, %s, %s", words[k+2/step], words[k], odd)
		}
	}
	return words[:4/per]
}

// fraction returns the number in [0, 1) of a word, or of two.
func (w *codeWriter) fraction(d expr.Dtype, words []string) string {
	if d == expr.Float32 {
		r := w.result(expr.F32, "cvt.rn.f32.u32 %s, %s", w.result(expr.B32, "shr.u32 %s, %s, 8", words[0]))
		w.Line("mul.rn.f32 %s, %s, 0f33800000", r, r)
		return r
	}
	whole := w.result(expr.B64, "mov.b64 %s, {%s, %s}", words[0], words[1])
	w.Line("shr.u64 %s, %s, 11", whole, whole)
	r := w.result(expr.F64, "cvt.rn.f64.u64 %s, %s", whole)
	w.Line("mul.rn.f64 %s, %s, 0d3CA0000000000000", r, r)
	return r
}
