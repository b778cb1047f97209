package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// affordable is the most arithmetic that a check is to do with the host's bodies,
// which use all cores, and plain with the plain loops of a reference.
const (
	affordable = 1 << 35
	plain      = 1 << 33
)

// check holds the output of a plan, all of it if that is at most limit operations,
// against float64 results on the same inputs. It returns what was checked, and the
// largest error as a share of what the op's Spec allows; both sides have that
// allowance in float64.
//
// What an element is allowed depends on its magnitude, the sum of the absolute
// values of its terms. Where that is the op's value on absolute inputs, as the
// op's small cases tell, the host's bodies compute both; for other ops, such as a
// difference, the case's Reference does.
func (t timedCase) check(p *kernels.Plan, inputs [][]byte, out []byte, limit int64) (what string, worst float64, err error) {
	if t.Spec.Exact {
		return t.checkExact(inputs, out)
	}
	absolute, err := t.absolute()
	if err != nil {
		return "", 0, err
	}
	what, shapes := "all", t.Case.Shapes
	if p.Flops > limit && absolute {
		if what, shapes, inputs, out, err = t.sample(p, inputs, out); err != nil {
			return "", 0, err
		}
	}
	in := make([][]float64, len(inputs))
	for i := range inputs {
		in[i] = widen(t.Dtype, inputs[i])
	}
	var want, magnitude []float64
	switch {
	case absolute:
		want, magnitude, err = hostMagnitude(t.Case, shapes, in)
	case p.Flops > plain:
		err = fmt.Errorf("too much work to check by the reference: %d operations, of an op whose magnitude is not its value on absolute inputs", p.Flops)
	default:
		want, magnitude = t.Case.Reference(in...)
	}
	if err != nil {
		return "", 0, err
	}
	allowed := t.Spec.Tolerance * 0x1p-23
	if t.Dtype == kernels.Float64 {
		allowed = 2 * t.Spec.Tolerance * 0x1p-52
	}
	return what, worstError(widen(t.Dtype, out), want, magnitude, allowed), nil
}

// absolute reports whether an element's magnitude is the op's value on absolute
// inputs, in all of the op's small cases.
func (t timedCase) absolute() (bool, error) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range t.Spec.Cases {
		elements := 0
		for _, s := range c.Shapes {
			elements += s.TotalSize()
		}
		if elements > 1<<12 {
			continue
		}
		in := make([][]float64, len(c.Shapes))
		for i, s := range c.Shapes {
			in[i] = make([]float64, s.TotalSize())
			for k := range in[i] {
				in[i][k] = 2*r.Float64() - 1
			}
		}
		_, want := c.Reference(in...)
		_, got, err := hostMagnitude(c, c.Shapes, in)
		if err != nil {
			return false, err
		}
		for k := range want {
			if !(math.Abs(got[k]-want[k]) <= 1e-9*want[k]) {
				return false, nil
			}
		}
	}
	return true, nil
}

// hostMagnitude runs the host's bodies of a case in float64 on inputs, and again on
// their absolute values, which it leaves in the inputs.
func hostMagnitude(c ops.Case, shapes []tensor.Shape, in [][]float64) (out, magnitude []float64, err error) {
	plan, _, err := evidence.Plan(c, kernels.Float64, shapes, kernels.HostDevice())
	if err != nil {
		return nil, nil, err
	}
	if out, err = runHost(plan, in); err != nil {
		return nil, nil, err
	}
	for _, x := range in {
		kernels.Parallel(int64(len(x)), 1, func(lo, hi int64) {
			for i := lo; i < hi; i++ {
				x[i] = math.Abs(x[i])
			}
		})
	}
	magnitude, err = runHost(plan, in)
	return out, magnitude, err
}

// sample draws 16 of the first input's rows, of which the output's rows are made,
// and returns the shapes, inputs and output of the case on these alone.
func (t timedCase) sample(p *kernels.Plan, inputs [][]byte, out []byte) (what string, shapes []tensor.Shape, in [][]byte, part []byte, err error) {
	const rows = 16
	shapes = slices.Clone(t.Case.Shapes)
	if shapes[0].IsScalar() {
		return "", nil, nil, nil, fmt.Errorf("too much work to check on the host: %d operations on a scalar", p.Flops)
	}
	n := shapes[0][0]
	pick := rand.Perm(n)[:min(rows, n)]
	shapes[0] = shapes[0].Clone()
	shapes[0][0] = len(pick)
	_, full, err := evidence.Plan(t.Case, t.Dtype, t.Case.Shapes, kernels.HostDevice())
	if err != nil {
		return "", nil, nil, nil, err
	}
	_, few, err := evidence.Plan(t.Case, t.Dtype, shapes, kernels.HostDevice())
	if err != nil || len(few) == 0 || full[0] != n || few[0] != len(pick) {
		return "", nil, nil, nil, fmt.Errorf("too much work to check on the host (%d operations), and not row by row: %v", p.Flops, err)
	}
	in = append([][]byte{gather(inputs[0], n, pick)}, inputs[1:]...)
	return fmt.Sprintf("%d rows", len(pick)), shapes, in, gather(out, n, pick), nil
}

// checkExact holds an output of int64 against the host's body, which counts the same
// or is infinitely far off.
func (t timedCase) checkExact(inputs [][]byte, out []byte) (what string, worst float64, err error) {
	plan, _, err := evidence.Plan(t.Case, t.Dtype, t.Case.Shapes, kernels.HostDevice())
	if err != nil {
		return "", 0, err
	}
	want := make([]int64, plan.Out/8)
	if err := plan.Run(inputs, kernels.Bytes(want), nil); err != nil {
		return "", 0, err
	}
	if !slices.Equal(kernels.Elements[int64](out), want) {
		worst = math.Inf(1)
	}
	return "all", worst, nil
}

// worstError is the largest |got-want| / (allowed*magnitude), infinite if
// lengths or non-finite elements differ.
func worstError(got, want, magnitude []float64, allowed float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var mu sync.Mutex
	worst := 0.0
	kernels.Parallel(int64(len(got)), 1, func(lo, hi int64) {
		w := 0.0
		for i := lo; i < hi; i++ {
			if got[i] == want[i] || math.IsNaN(got[i]) && math.IsNaN(want[i]) {
				continue
			}
			e := math.Abs(got[i]-want[i]) / (allowed * magnitude[i])
			if math.IsNaN(e) {
				e = math.Inf(1)
			}
			w = max(w, e)
		}
		mu.Lock()
		defer mu.Unlock()
		worst = max(worst, w)
	})
	return worst
}

func runHost(p *kernels.Plan, in [][]float64) ([]float64, error) {
	out := make([]float64, p.Out/8)
	inputs := make([][]byte, len(in))
	for i, x := range in {
		inputs[i] = kernels.Bytes(x)
	}
	return out, p.Run(inputs, kernels.Bytes(out), nil)
}

// gather is some of the n equal rows of b, in the order of pick.
func gather(b []byte, n int, pick []int) []byte {
	row := len(b) / n
	part := kernels.Bytes(make([]float64, (len(pick)*row+7)/8))[:0] // aligned
	for _, i := range pick {
		part = append(part, b[i*row:(i+1)*row]...)
	}
	return part
}

// widen copies elements into float64.
func widen(dt kernels.Dtype, b []byte) []float64 {
	if dt == kernels.Float64 {
		return append([]float64{}, kernels.Elements[float64](b)...)
	}
	s := kernels.Elements[float32](b)
	out := make([]float64, len(s))
	kernels.Parallel(int64(len(s)), 1, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			out[i] = float64(s[i])
		}
	})
	return out
}

// randomBlock is random numbers in [-1, 1) and random bytes, of which inputs of any
// size are made by repetition. It is longer than any GPU's level-2 cache and of a length
// that no power of two divides evenly.
type randomBlock struct {
	f32 []float32
	f64 []float64
	u8  []uint8
}

func newRandomBlock(seed uint64) randomBlock {
	const n = 40_000_003 // a prime
	r := rand.New(rand.NewPCG(seed, 0))
	var key [32]byte
	b := randomBlock{make([]float32, n), make([]float64, n), make([]uint8, n)}
	binary.LittleEndian.PutUint64(key[:], seed)
	rand.NewChaCha8(key).Read(b.u8) // reads always fill the slice
	for i := range n {
		b.f64[i] = 2*r.Float64() - 1
		b.f32[i] = float32(b.f64[i])
	}
	return b
}

// fill is n bytes of elements for input i of an op; inputs differ.
func (b randomBlock) fill(dt kernels.Dtype, n int64, i int) []byte {
	switch dt {
	case kernels.Float32:
		return kernels.Bytes(repeat(b.f32, n/4, i))
	case kernels.Uint8:
		return repeat(b.u8, n, i)
	}
	return kernels.Bytes(repeat(b.f64, n/8, i))
}

func repeat[T kernels.Element](block []T, n int64, i int) []T {
	s := make([]T, n)
	kernels.Parallel(n, 1, func(lo, hi int64) {
		for at := (lo + int64(i)*1_000_003) % int64(len(block)); lo < hi; at = 0 {
			lo += int64(copy(s[lo:hi], block[at:]))
		}
	})
	return s
}
