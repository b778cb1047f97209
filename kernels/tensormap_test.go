package kernels

import (
	"slices"
	"strings"
	"testing"
)

// planes is a map of three planes of 100 rows of 72 BF16 elements.
func planes() TensorMap {
	return TensorMap{
		Ref:     Ref{Operand: Scratch, Offset: 256},
		Element: TensorBF16,
		Extents: []int64{70, 100, 3},
		Strides: []int64{144, 14400},
		Box:     []int64{64, 32, 1},
		Swizzle: 128,
	}
}

func TestTensorMap(t *testing.T) {
	m := planes()
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if got, want := m.Bytes(), int64(2*14400+99*144+70*2); got != want {
		t.Errorf("the map covers %d bytes, want %d", got, want)
	}
	const want = "map(scratch+256, bf16, extents [70 100 3], strides [144 14400], box [64 32 1], swizzle 128)"
	if got := m.String(); got != want {
		t.Errorf("the map prints as %s, want %s", got, want)
	}
	m.Windows, m.Box = &TensorWindows{[]int64{-1}, []int64{-127}, []int64{2}}, []int64{64, 32}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	const windows = "map(scratch+256, bf16, extents [70 100 3], strides [144 14400], box [64 32], swizzle 128, windows from [-1] to [-127] by [2])"
	if got := m.String(); got != windows {
		t.Errorf("the map prints as %s, want %s", got, windows)
	}
}

// Tensors that TMA cannot copy are refused with an error that names the reason.
func TestTensorMapErrors(t *testing.T) {
	for want, spoil := range map[string]func(*TensorMap){
		"0 extents":                func(m *TensorMap) { m.Extents = nil },
		"1 strides":                func(m *TensorMap) { m.Strides = m.Strides[:1] },
		"box of 2 axes":            func(m *TensorMap) { m.Box = m.Box[:2] },
		"element type 9":           func(m *TensorMap) { m.Element = 9 },
		"at byte 8":                func(m *TensorMap) { m.Ref.Offset = 8 },
		"extent 0 along axis 1":    func(m *TensorMap) { m.Extents[1] = 0 },
		"257 elements along":       func(m *TensorMap) { m.Box[1] = 257 },
		"stride 146 along axis 1":  func(m *TensorMap) { m.Strides[0] = 146 },
		"swizzle 16":               func(m *TensorMap) { m.Swizzle = 16 },
		"rows of 128 bytes in the": func(m *TensorMap) { m.Swizzle = 64 },
		"rows of 14 bytes in the":  func(m *TensorMap) { m.Box[0] = 7 },
		"box of 3 axes":            func(m *TensorMap) { m.Windows = &TensorWindows{[]int64{0}, []int64{0}, []int64{1}} },
		"windows from [0 0]":       func(m *TensorMap) { m.Windows = &TensorWindows{[]int64{0, 0}, []int64{0}, []int64{1}} },
		"corners from -32768":      func(m *TensorMap) { m.Windows = &TensorWindows{[]int64{1 << 15}, []int64{0}, []int64{1}} },
		"steps from 1 to 8":        func(m *TensorMap) { m.Windows = &TensorWindows{[]int64{0}, []int64{0}, []int64{9}} },
	} {
		m := planes()
		spoil(&m)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// A launch's map must be of an operand of the plan, and inside it.
func TestTensorMapInPlan(t *testing.T) {
	takes := signature{params: []param{{kind: tensorMapKind}}}
	m := planes()
	p := &Plan{Inputs: []int64{4}, Scratch: 256 + m.Bytes()}
	for want, spoil := range map[string]func(*TensorMap){
		"":                                       func(*TensorMap) {},
		"operand 1 of a plan":                    func(m *TensorMap) { m.Ref.Operand = 1 },
		"swizzle 16":                             func(m *TensorMap) { m.Swizzle = 16 },
		"a tensor of 57596 bytes at scratch+256": func(m *TensorMap) { m.Extents[2] = 4 },
	} {
		m := planes()
		m.Extents = slices.Clone(m.Extents)
		spoil(&m)
		l := &Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: []any{m}}
		if err := takes.check(p, l); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
