package codegen

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// body is the Go body: blocks of elements, gathered where they do not lie one
// behind the other, in parallel.
func (m *mapping) body(c kernels.Call) {
	for part := range max(m.count, 1) {
		kernels.Parallel(m.n, kernels.Grain/m.cost, func(lo, hi int64) { m.run(c, part, lo, hi) })
	}
}

// run computes the elements from lo to hi; part is that of a concatenation.
func (m *mapping) run(c kernels.Call, part int, lo, hi int64) {
	b := m.blocks.Get().(*block)
	defer m.blocks.Put(b)
	b.bind(c, part, min(hi-lo, expr.BlockSize))
	for at := lo; at < hi; at += expr.BlockSize {
		n := int(min(expr.BlockSize, hi-at))
		b.read(at, n)
		for k, d := range m.outputs {
			if m.toStrides == nil {
				b.out[k] = unsafe.Pointer(&b.outputs[k][at*d.Size()])
				if b.late[k] != nil {
					b.out[k] = unsafe.Pointer(unsafe.SliceData(b.late[k]))
				}
			}
		}
		m.eval.Run(n, b.in, b.out) // fails for other numbers of operands only
		if m.toStrides != nil {
			b.spread(n)
		}
		for k, d := range m.outputs {
			if b.late[k] != nil && m.toStrides == nil {
				copy(b.outputs[k][at*d.Size():], b.late[k][:int64(n)*d.Size()])
			}
		}
	}
}

// block holds where the elements of a block are, for one goroutine at a time.
type block struct {
	*mapping
	operands, outputs [][]byte // of a launch
	in, out           []unsafe.Pointer
	gathered          [][]byte
	index             []int64  // of a block's first element
	walk              []int64  // of the element that is gathered
	spreading         [][]byte // elements of the outputs that go to an index each
	late              [][]byte // of outputs among several that lie where operands do, written when these have been read
}

func (m *mapping) newBlock() any {
	in, out := len(m.types), len(m.outputs)
	b := &block{m, make([][]byte, in), make([][]byte, out), make([]unsafe.Pointer, in), make([]unsafe.Pointer, out), make([][]byte, in),
		make([]int64, len(m.shape)), make([]int64, len(m.shape)), nil, make([][]byte, out)}
	for k := range m.outputs {
		if m.toStrides != nil {
			b.spreading = append(b.spreading, kernels.Bytes(make([]int64, expr.BlockSize)))
			b.out[k] = unsafe.Pointer(unsafe.SliceData(b.spreading[k]))
		}
	}
	for i, d := range m.types {
		if a := access(m.layout.accesses[i]); a != dense && a != unaligned || isRandom(m.layout.random, i) {
			memory := kernels.Bytes(make([]int64, kernels.CeilDiv(expr.BlockSize*d.Size(), 8)))
			b.gathered[i], b.in[i] = memory, unsafe.Pointer(unsafe.SliceData(memory))
		}
	}
	return b
}

// bind takes the operands of a launch whose blocks have up to size elements.
func (b *block) bind(c kernels.Call, part int, size int64) {
	for i, d := range b.types {
		b.operands[i] = kernels.Slice[byte](c, part+i)
		if access(b.layout.accesses[i]) == scalar && !isRandom(b.layout.random, i) {
			for k := range size {
				copy(b.gathered[i][k*d.Size():], b.operands[i][:d.Size()])
			}
		}
	}
	first := len(b.operands) + max(b.layout.joined-1, 0)
	for k, d := range b.mapping.outputs {
		b.outputs[k] = kernels.Slice[byte](c, first+k)[int64(part)*b.next*d.Size():]
		b.late[k] = nil
		inPlace := func(operand []byte) bool { return overlap(operand, b.outputs[k]) }
		if len(b.outputs) > 1 && slices.ContainsFunc(b.operands, inPlace) {
			b.late[k] = make([]byte, size*d.Size())
		}
	}
}

// overlap reports whether two pieces of memory share bytes.
func overlap(x, y []byte) bool {
	if len(x) == 0 || len(y) == 0 {
		return false
	}
	a, b := uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&y[0]))
	return a < b+uintptr(len(y)) && b < a+uintptr(len(x))
}

// read finds n elements from at on of each operand.
func (b *block) read(at int64, n int) {
	rest := at
	for a := len(b.shape) - 1; a >= 0; a-- {
		b.index[a] = rest % b.shape[a]
		rest /= b.shape[a]
	}
	for i, d := range b.types {
		to := b.gathered[i]
		if b.layout.merged {
			to = b.gathered[0]
		}
		switch a := access(b.layout.accesses[i]); {
		case isRandom(b.layout.random, i):
			b.draw(i, n)
		case a == dense || a == unaligned:
			b.in[i] = unsafe.Pointer(&b.operands[i][at*d.Size()])
		case a == padded && d.Size() == 1:
			pad(b, i, kernels.Elements[uint8](to), n)
		case a == padded && d.Size() == 4:
			pad(b, i, kernels.Elements[uint32](to), n)
		case a == padded:
			pad(b, i, kernels.Elements[int64](to), n)
		case a.byIndex() && d.Size() == 1:
			gather(b, i, kernels.Elements[uint8](b.gathered[i]), n)
		case a.byIndex() && d.Size() == 4:
			gather(b, i, kernels.Elements[uint32](b.gathered[i]), n)
		case a.byIndex():
			gather(b, i, kernels.Elements[int64](b.gathered[i]), n)
		}
	}
}

// spread copies n elements of each output from the block's index on to their places.
func (b *block) spread(n int) {
	for i, d := range b.mapping.outputs {
		b.runs(b.toStrides, n, func(k, at, stride int64, run int) {
			move(d.Size(), b.outputs[i], at, stride, b.spreading[i], k, 1, int64(run))
		})
	}
}

// runs calls f for the runs of n elements that lie by those strides, from the block's index
// on, and have one stride: with a run's first element in the block and in memory, the stride, and
// the number.
func (b *block) runs(strides []int64, n int, f func(k, at, stride int64, run int)) {
	last := len(b.shape) - 1
	if last < 0 { // one element
		f(0, 0, 0, n)
		return
	}
	index := append(b.walk[:0], b.index...)
	for k := 0; k < n; {
		at := int64(0)
		for a, s := range strides {
			at += index[a] * s
		}
		run := int(min(int64(n-k), b.shape[last]-index[last]))
		f(int64(k), at, strides[last], run)
		k += run
		index[last] += int64(run)
		for a := last; a > 0 && index[a] == b.shape[a]; a-- {
			index[a] = 0
			index[a-1]++
		}
	}
}

// gather copies n elements of operand i from the block's index on.
func gather[T kernels.Element](b *block, i int, to []T, n int) {
	from := kernels.Elements[T](b.operands[i])
	b.runs(b.strides[i], n, func(k, at, stride int64, run int) {
		moveElements(to[k:], 1, from[at:], stride, int64(run))
	})
}

// draw makes n random numbers of operand i from the block's index on.
func (b *block) draw(i, n int) {
	g := newGenerator(b.operands[i], b.streams[i])
	b.runs(b.strides[i], n, func(k, at, stride int64, run int) {
		g.fill(b.types[i], b.gathered[i], k, b.offsets[i]+at, stride, int64(run))
	})
}
