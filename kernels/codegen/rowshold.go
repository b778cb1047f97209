package codegen

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// maxResident is the most elements of an operand that a thread keeps: the kernel has code for each.
const maxResident = 64

// chooseResident decides how many vectors of row-varying operands a thread keeps in registers and shared memory: all, none, or, for long
// rows, as many as fit. The rest is reloaded in each step, mostly from cache.
func (m *nest) chooseResident(dev kernels.Device, pol rowsPolicy) {
	l, between := &m.layout, m.grid.colStride()
	columns := m.grid.columnsInBlock(m.columns)
	needed, most := kernels.CeilDiv(columns, between), maxResident/m.grid.width
	switch {
	case l.sharesPerBlock > 0:
		l.bytesPerIter = int(pol.bytesPerIterShares)
		return
	case l.split || l.streams:
		l.bytesPerIter = int(pol.bytesPerIter)
		return
	}
	operands, all := m.residentOperands(), needed
	few := m.grid.small && needed <= 4
	if few { // so that there are fewer kernels: see rowsPolicy.roundThreads
		all = arith.Pow2(needed)
	}
	for _, registers := range m.registerBytes(pol, operands, all) {
		if shared, ok := m.splitResident(dev, operands, all, registers); ok && all <= most {
			l.vectors, l.small, l.shared = int(all), few, shared
			l.full = !few && columns%between == 0 && m.columns%columns == 0
			return
		}
	}
	l.bytesPerIter = int(pol.bytesPerIter)
	if m.grid.cluster == 0 && l.threadsPerRow*l.rowsPerBlock < int(pol.fullRegsMaxThreads) || elementSteps(m.staged) == 1 || len(operands) == 0 {
		return
	}
	if m.grid.cluster > 0 { // the cluster's last block computes slightly fewer columns
		needed--
	}
	for n := min(needed-1, most); n > needed/4; n-- {
		if shared, ok := m.splitResident(dev, operands, n, pol.partialResidentBytes); ok {
			l.vectors, l.full, l.partial, l.shared = int(n), true, true, shared
			return
		}
	}
}

// registerBytes returns the most bytes of operands that a thread keeps in registers: first if shared memory has room for the rest, then
// if it has not.
func (m *nest) registerBytes(pol rowsPolicy, operands []int, vectors int64) [2]int64 {
	most := pol.residentBytes
	if m.grid.cluster > 0 || m.grid.threadsPerRow*m.grid.rowsPerBlock > pol.fullRegsMaxThreads {
		most /= 2
	}
	if m.grid.cluster > 0 {
		return [2]int64{pol.clusterResidentBytes, most}
	}
	one := int64(0)
	for _, i := range operands {
		one = max(one, vectors*m.grid.width*inRegister(m.types[i]))
	}
	return [2]int64{min(one, most), most}
}

// residentOperands returns the operands that are worth keeping, those that are needed longest first.
func (m *nest) residentOperands() (list []int) {
	for _, i := range m.used {
		if p := m.layout.place(i); p.columns != fixed && p.mark != ordinal && (p.rows != fixed || m.rows == 1) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(i, j int) int { return cmp.Or(m.lastUse(j)-m.lastUse(i), j-i) })
	return list
}

// inRegister returns the bytes of registers that an element occupies.
func inRegister(d expr.Dtype) int64 {
	if d == expr.BF16 || d == expr.F16 {
		return 4
	}
	return d.Size()
}

// splitResident returns a character for each operand: '0' plus the number of its vectors that go to shared memory because `registers`
// bytes are in use. It reports whether shared memory has room for them.
func (m *nest) splitResident(dev kernels.Device, operands []int, vectors, registers int64) (inShared string, ok bool) {
	excess, counts := -registers, bytes.Repeat([]byte{'0'}, len(m.types))
	for _, i := range operands {
		excess += vectors * m.grid.width * inRegister(m.types[i])
	}
	shared := int64(0)
	for _, i := range operands {
		size, held := m.grid.width*m.types[i].Size(), m.grid.width*inRegister(m.types[i]) // of a vector
		if p := m.layout.place(i); excess > 0 && !p.mark.random() && size >= 4 && (p.lanes == aligned || m.grid.width == 1) {
			n := min(kernels.CeilDiv(excess, held), vectors)
			excess, shared, counts[i] = excess-n*held, shared+n*size, byte('0'+n)
		}
	}
	if shared == 0 {
		return "", excess <= 0
	}
	shared *= m.grid.threadsPerRow * m.grid.rowsPerBlock
	return string(counts), excess <= 0 && dev.Major >= 8 && elementSteps(m.staged) > 1 && shared <= int64(dev.SharedOptin-reduceBytes(m.layout, m.staged))
}

// sharedBytes returns the bytes of operands of these types that a block keeps in shared memory.
func (l *layout) sharedBytes(types []expr.Dtype) int {
	bytes := 0
	for i, n := range []byte(l.shared) {
		bytes += int(n-'0') * l.width * int(types[i].Size()) * l.threadsPerRow * l.rowsPerBlock
	}
	return bytes
}

// elementSteps returns the number of steps of a function that go through the elements of a row.
func elementSteps(staged expr.Staged) int {
	return len(staged.Stages) + min(len(staged.Elements.Outputs()), 1)
}

// lastUse returns the last step that an operand is used in.
func (m *nest) lastUse(operand int) (last int) {
	uses := func(step int, f expr.Func) {
		if _, needs := f.Trim(); slices.Contains(needs, operand) {
			last = step
		}
	}
	for k, s := range m.staged.Stages {
		uses(k, s.Func)
	}
	uses(len(m.staged.Stages), m.staged.Elements)
	return last
}

// firstShared returns the first vector of an operand or a kept value that is in shared memory.
func (w *rowsWriter) firstShared(operand int) int {
	if w.shared == "" {
		return w.vectors
	}
	return w.vectors - int(w.shared[w.heldIn(operand)]-'0')
}

// keptValue is a value at each element that a stage computes and a later step reads. Its vectors replace those of an operand in shared memory that no later step reads.
type keptValue struct {
	dtype       expr.Dtype
	operand     int
	stage, step int // that computes it; that reads it last
}

// makeStages splits the function. Threads of a cluster have too few registers for what they compute of elements in shared memory, so they keep values there that take long and that
// another step reads, if there is room. The values are operands of the steps, behind the function's.
func (w *rowsWriter) makeStages() (err error) {
	if w.staged, err = w.f.Stages(w.perRow); err != nil || w.cluster == 0 || w.shared == "" || w.partial {
		return err
	}
	staged, types, err := w.f.StagesKept(w.perRow)
	if err != nil {
		return err
	}
	last := make([]int, len(w.types)+len(types)) // the last step that reads an operand or a kept value
	for step := range len(staged.Stages) + 1 {
		f := staged.Elements
		if step < len(staged.Stages) {
			f = staged.Stages[step].Func
		}
		_, needs := f.Trim()
		for _, i := range needs {
			if i < len(last) {
				last[i] = step
			}
		}
	}
	var kept []keptValue
	for stage, s := range staged.Stages {
		for range s.Kept {
			v := keptValue{types[len(kept)], -1, stage, last[len(w.types)+len(kept)]}
			for i, d := range w.types {
				taken := slices.ContainsFunc(kept, func(k keptValue) bool { return k.operand == i && k.step > stage })
				if w.shared[i] > '0' && d.Size() == v.dtype.Size() && last[i] <= stage && !taken {
					v.operand = i
				}
			}
			if v.operand < 0 {
				return nil
			}
			kept = append(kept, v)
		}
	}
	w.staged, w.kept = staged, kept
	return nil
}

// isKept reports whether an operand of a step is a kept value.
func (w *rowsWriter) isKept(i int) bool { return i >= len(w.types) && i < len(w.types)+len(w.kept) }

// heldIn returns the operand whose vectors a kept value replaces, or the operand itself.
func (w *rowsWriter) heldIn(i int) int {
	if w.isKept(i) {
		return w.kept[i-len(w.types)].operand
	}
	return i
}

// keep keeps values of vector j that a stage has computed.
func (w *rowsWriter) keep(b *batch, j int, values [][]string) {
	for k, v := range w.kept {
		if v.stage != w.stages {
			continue
		}
		if i := len(w.types) + k; j < w.firstShared(i) {
			b.elements[i] = append(b.elements[i], values[0])
		} else {
			w.vectorAccess("st.shared", v.dtype, location{w.slots[v.operand], w.slot(v.dtype, j)}, values[0])
		}
		values = values[1:]
	}
}

// residentRegisters returns how many registers of a thread contain resident elements.
func (w *rowsWriter) residentRegisters() (n int) {
	for _, i := range w.used {
		if p := w.places[i]; p.columns != fixed && p.mark != ordinal && (p.rows != fixed || !w.severalRows()) {
			n += w.firstShared(i) * w.width * int(kernels.CeilDiv(w.types[i].Size(), 4))
		}
	}
	return n
}

// noColumns is a label that threads with a row without columns would jump to. There are none; for its use see copyShared.
const noColumns = "empty"

// copyShared issues copies of the thread's vectors into shared memory, past the registers. No other thread reads them. The assembler
// would issue them after the elements in registers have been loaded and accumulated, which is a second wait for memory; it moves no copy
// past a branch (H200, gradient of layer norm of 16384 x 1000: 53.4 us; 50.1 so, with the wait where they are needed).
func (w *rowsWriter) copyShared() {
	if w.shared == "" {
		return
	}
	w.Declare(".extern .shared .align 16 .b8 held[]")
	base, number := w.result(expr.B32, "mov.u32 %s, held"), w.result(expr.B32, "mov.u32 %s, %%tid.x")
	begin := int64(0)
	w.slots = make([]string, len(w.types))
	for i, d := range w.types {
		if first := w.firstShared(i); first < w.vectors {
			w.slots[i] = w.result(expr.B32, "mad.lo.u32 %s, %s, %d, %s", number, int64(w.width)*d.Size(), base)
			w.Line("add.u32 %s, %s, %d", w.slots[i], w.slots[i], begin-w.slot(d, first))
			begin += w.slot(d, w.vectors-first)
		}
	}
	for j, exists := range w.residentBatch.exists {
		for i, d := range w.types {
			if j < w.firstShared(i) {
				continue
			}
			at := w.locate(w.places[i], w.residentBatch, j)[0]
			bytes := int64(w.width) * d.Size()
			for done := int64(0); done < bytes; done += 16 {
				cache := "ca"
				if bytes >= 16 {
					cache = "cg"
				}
				w.Line("%scp.async.%s.shared.global [%s+%d], %s, %d", predicated(exists), cache, w.slots[i], w.slot(d, j)+done, location{at.register, at.bytes + done}, min(bytes, 16))
			}
		}
	}
	w.Line("@%s bra %s", w.predicate("eq", w.columns, "0"), noColumns)
	w.copyPending = true
}

// slot returns the offset of vector j in shared memory, in bytes, from where a thread's first vector would be if all
// were there.
func (w *rowsWriter) slot(d expr.Dtype, j int) int64 {
	return int64(j*w.threadsPerRow*w.rowsPerBlock*w.width) * d.Size()
}

// waitShared waits for the copies to shared memory, before the first of these operands is read there. By then the loads into registers
// have been issued, since the assembler moves none past the synchronization.
func (w *rowsWriter) waitShared(operands []int) {
	if w.copyPending && slices.ContainsFunc(operands, func(i int) bool { return w.firstShared(i) < w.vectors }) {
		w.Line("bar.warp.sync 0xffffffff")
		w.Line("cp.async.wait_all")
		w.copyPending = false
	}
}

// loadShared loads vector j of an operand or a kept value in shared memory.
func (w *rowsWriter) loadShared(operand, j int) []string {
	held := w.heldIn(operand)
	d := w.types[held]
	if held != operand {
		d = w.kept[operand-len(w.types)].dtype
	}
	list := w.registers(d, w.width)
	at, key := location{w.slots[held], w.slot(d, j)}, [2]int{operand, j}
	for k, before := range w.loaded[key] {
		if d.Size() < 8 && w.cluster == 0 { // else registers don't suffice for what was computed
			w.Again(list[k], before)
		}
	}
	w.loaded[key] = list
	if w.width > 1 {
		w.vectorAccess("ld.shared", d, at, list)
	} else {
		w.Line("ld.shared.%s %s, %s", memoryType(d), list[0], at)
	}
	return list
}
