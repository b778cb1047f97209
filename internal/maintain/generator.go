package maintain

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// A sample is a kernel to generate of a function y of a, and of b, which has an element for each index along the second axis. With reductions it computes (y - rowmax(y)) / rowsum(y).
type sample struct {
	text   string
	shape  []int
	axes   []int           // of reductions; nil for a Map
	split  []codegen.Split // of a Map
	turn   bool            // the first two axes of a are stored in the other order
	concat bool            // no function, but two operands along the second axis
}

// samples have a kernel of each form that package codegen generates. A line that is added or changed makes the evidence of the suites "generated" stale.
var samples = []sample{
	{text: "tanh(a) * b + exp(a / b)", shape: []int{300, 7, 40}},
	{text: "max(a, b) * 0.5", shape: []int{1 << 12, 1 << 12, 1}},
	{text: "a + b", shape: []int{1000, 3000, 1}, turn: true},
	{text: "a * b", shape: []int{64, 128, 56 * 56}, split: []codegen.Split{codegen.SplitInOrder}},
	{text: "a * b", shape: []int{64, 128, 56 * 56}, split: []codegen.Split{codegen.SplitChannelsLast}},
	{text: "exp(a)", shape: []int{5000, 1, 1000}, axes: []int{2}},
	{text: "exp(a)", shape: []int{5000, 20, 9}, axes: []int{1, 2}},
	{text: "exp(a)", shape: []int{64, 1, 1 << 17}, axes: []int{2}},
	{text: "exp(a)", shape: []int{2, 1, 1 << 24}, axes: []int{2}},
	{text: "a * b", shape: []int{64, 128, 28 * 28}, axes: []int{0, 2}},
	{text: "a * b", shape: []int{5000, 300, 1}, axes: []int{0}},
	{text: "a + b", shape: []int{100, 3000, 10}, axes: []int{1}},
	{text: "a", shape: []int{100, 3000, 10}, concat: true},
}

// generatorDigest is the digest of the kernels that the generator makes of samples, for each type and device.
var generatorDigest = sync.OnceValues(func() (string, error) {
	h := sha256.New()
	for _, dev := range opspec.Devices() {
		for _, dt := range []expr.Dtype{expr.Float32, expr.Float64, expr.BF16} {
			for _, s := range samples {
				if s.split != nil && (dt != expr.Float32 || dev.Major < 8) {
					continue
				}
				p, err := s.plan(dev, dt)
				if err != nil {
					return "", fmt.Errorf("%s in %v: %w", s.text, dt, err)
				}
				for _, l := range p.Launches {
					image, ok := l.Kernel.Image.(kernels.Generated)
					if !ok {
						return "", fmt.Errorf("%s in %v: got a %T, want a generated kernel", s.text, dt, l.Kernel.Image)
					}
					ptx, err := image.PTX(dev.Major)
					if err != nil {
						return "", err
					}
					h.Write(ptx)
				}
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6]), nil
})

func (s sample) plan(dev kernels.Device, dt expr.Dtype) (*kernels.Plan, error) {
	computed := dt
	if dt == expr.BF16 {
		computed = expr.Float32
	}
	f, err := expr.Parse(s.text, computed, "a", "b")
	if err != nil {
		return nil, err
	}
	a := codegen.Dense(s.shape)
	if s.concat {
		return codegen.Concat(dev, dt, s.shape, 1, []int{1, s.shape[1] - 1}, codegen.Dense([]int{s.shape[0], 1, s.shape[2]}), codegen.Dense([]int{s.shape[0], s.shape[1] - 1, s.shape[2]}))
	}
	if s.turn {
		a.Strides = slices.Clone(a.Strides)
		a.Strides[0], a.Strides[1] = 1, s.shape[0]
	}
	views := []codegen.View{a, {Elements: int64(s.shape[1]), Strides: []int{0, 1, 0}}}
	if s.axes != nil {
		b := expr.NewBuilder(computed, computed)
		y := b.Inline(f, b.Inputs()...)[0]
		if f, err = b.Func(b.Apply(expr.Div, b.Apply(expr.Sub, y, b.Apply(expr.RowMax, y)), b.Apply(expr.RowSum, y))); err != nil {
			return nil, err
		}
	}
	if f, err = f.Stored([]expr.Dtype{dt, dt}, []expr.Dtype{dt}); err != nil {
		return nil, err
	}
	switch {
	case s.axes != nil:
		return codegen.Rows(dev, f, s.shape, s.axes, []bool{false}, views...)
	case s.split != nil:
		return codegen.MapSplit(dev, f, s.shape, s.split, views...)
	}
	return codegen.Map(dev, f, s.shape, views...)
}
