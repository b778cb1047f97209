package suite

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Every test is in one part, whatever the number of parts.
func TestPartOf(t *testing.T) {
	for _, c := range []struct {
		of          string
		part, parts int
	}{{"", 0, 1}, {"nonsense", 0, 1}, {"1/0", 0, 1}, {"1/1", 0, 1}, {"1/3", 1, 3}, {"2/3", 2, 3}, {"3/3", 0, 3}} {
		if part, parts := partOf(c.of); part != c.part || parts != c.parts {
			t.Errorf("STHENO_PART=%q: %d of %d, want %d of %d", c.of, part, parts, c.part, c.parts)
		}
	}
}

// broken is an Add whose body is replaced.
func broken(body func(a, b, out []float64)) *kernels.Plan {
	p := basic.Add(kernels.HostDevice(), kernels.Float64, 7)
	p.Launches[0].Kernel = &kernels.Kernel{Entry: "broken", Body: func(c kernels.Call) {
		body(kernels.Slice[float64](c, kernels.In(0)), kernels.Slice[float64](c, kernels.In(1)), kernels.Slice[float64](c, kernels.At(kernels.Out, 0)))
	}}
	return p
}

// TestSuiteCatchesWrongKernels: kernels that are wrong in one way each fail
// the function that all kernels pass.
func TestSuiteCatchesWrongKernels(t *testing.T) {
	add := func(a, b, out []float64) {
		for i := range out {
			out[i] = a[i] + b[i]
		}
	}
	beyond := func(x []float64, k int) *float64 { return (*float64)(unsafe.Add(unsafe.Pointer(&x[0]), k*8)) }
	runs := 0.0
	for _, c := range []struct {
		name, want string
		body       func(a, b, out []float64)
	}{
		{"right", "", add},
		{"drops the last element", "element 6 of 7 was not written", func(a, b, out []float64) { add(a, b, out[:6]) }},
		{"drops the first element", "element 0 of 7 was not written", func(a, b, out []float64) { add(a[1:], b[1:], out[1:]) }},
		{"writes past the end", "outside its output", func(a, b, out []float64) { add(a, b, out); *beyond(out, 7) = 1 }},
		{"writes before the start", "outside its output", func(a, b, out []float64) { add(a, b, out); *beyond(out, -1) = 1 }},
		{"writes an input", "wrote its input 1", func(a, b, out []float64) { add(a, b, out); b[3]++ }},
		{"is off by a few epsilons", "element 4: got", func(a, b, out []float64) {
			add(a, b, out)
			out[4] += 0x1p-49 * (math.Abs(a[4]) + math.Abs(b[4]))
		}},
		{"gives a NaN", "element 2: got NaN", func(a, b, out []float64) { add(a, b, out); out[2] = math.NaN() }},
		{"gives an Inf", "element 2: got +Inf", func(a, b, out []float64) { add(a, b, out); out[2] = math.Inf(1) }},
		{"changes from run to run", "gave other bits", func(a, b, out []float64) {
			add(a, b, out)
			runs++
			out[0] = math.Float64frombits(math.Float64bits(out[0]) + uint64(runs))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Random(t)
			x := opspec.Case{Shapes: []tensor.Shape{{7}, {7}}}
			xs := opspec.Normal.Draw(r, x, kernels.Float64)
			ref, magnitude := make([]float64, 7), make([]float64, 7)
			for i := range ref {
				ref[i] = xs[0][i] + xs[1][i]
				magnitude[i] = math.Abs(xs[0][i]) + math.Abs(xs[1][i])
			}
			err := CheckPlan(OnHost, 3, broken(c.body), kernels.Float64, kernels.Float64, xs, ref, magnitude, 1, false)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// inflated is 1.01 times an op, under the op's own gradient, which so is wrong.
type inflated struct{ hostOp }

// hostOp holds the methods that the machines of the host call on an op.
type hostOp interface {
	gorgonia.SDOp
	gorgonia.ADOp
}

func (o inflated) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := o.hostOp.Do(in...)
	if err != nil {
		return nil, err
	}
	mem, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	if v.Dtype() == tensor.Float32 {
		for i := range kernels.Elements[float32](mem) {
			kernels.Elements[float32](mem)[i] *= 1.01
		}
		return v, nil
	}
	for i := range kernels.Elements[float64](mem) {
		kernels.Elements[float64](mem)[i] *= 1.01
	}
	return v, nil
}

func (o inflated) UsePreallocDo(_ gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	return o.Do(in...)
}

// WriteHash differs from the op's: a graph keeps one node of one hash.
func (o inflated) WriteHash(h hash.Hash) { fmt.Fprintf(h, "inflated %v", o.hostOp) }

func (o inflated) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// isFlat reports whether the reference of a case does not depend on its inputs.
func isFlat(c opspec.Case) bool {
	r := rand.New(rand.NewPCG(1, 1))
	draw := func() (in [][]float64) {
		for _, s := range c.Shapes {
			list := make([]float64, max(s.TotalSize(), 1))
			for i := range list {
				list[i] = r.NormFloat64()
			}
			in = append(in, list)
		}
		return in
	}
	a, _ := c.Reference(draw()...)
	b, _ := c.Reference(draw()...)
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-12 })
}

// TestSuiteCatchesWrongGradients: for every op, a gradient that is wrong by one
// percent fails the function that all gradients pass, in both modes. Inputs of a case of few elements may have
// no gradient to speak of, of which a percent is nothing, and few elements of many may have one: then others are drawn, and all
// their elements checked.
func TestSuiteCatchesWrongGradients(t *testing.T) {
	each(t, 600, differentiableOp, func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype) {
		parallelOnHost(t)
		if !drawnType(s, c, dt) || isFlat(c) { // a wrong gradient of 0 is 0
			return
		}
		lying := c
		lying.Build = func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			y, err := c.Build(in...)
			if err != nil {
				return nil, err
			}
			return gorgonia.ApplyOp(inflated{y.Op().(hostOp)}, in...)
		}
		for _, mode := range []gradcheck.Mode{gradcheck.SymDiff, gradcheck.DoDiff} {
			r := Random(t)
			err := checkGradients(r, lying, dt, gradcheck.Modes(mode))
			for draws := 1; err == nil && draws < 40; draws++ {
				err = checkGradients(r, lying, dt, gradcheck.Modes(mode), gradcheck.MaxElements(math.MaxInt))
			}
			var m *gradcheck.Mismatch
			if !errors.As(err, &m) || m.Mode != mode {
				t.Errorf("%v: got %v, want a *Mismatch", mode, err)
			}
		}
	})
}
