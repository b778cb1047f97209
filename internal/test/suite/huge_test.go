package suite

import (
	"fmt"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/window"
)

// Plans of operands of up to 2^47 elements can be launched, and have the sizes of their operands, or are errors that say what is wrong, without long searches.
func TestHugePlans(t *testing.T) {
	const draws, most, want = 20, 1 << 47, 1000
	r := testutil.Random(t)
	devices := []kernels.Device{kernels.HostDevice()}
	for _, l := range targets {
		devices = append(devices, l.devices()[0])
	}
	counts := map[string]int{}
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for range draws {
				c := c.Enlarged(r)
				if c.Composed || c.MaxElements() > most {
					continue
				}
				dt, dev := c.Types[r.IntN(len(c.Types))], devices[r.IntN(len(devices))]
				if got, err := hugePlan(c, dt, dev); err != nil {
					t.Errorf("%s %s %v, %v on %s: %v", s.Name, c.Name, c.Shapes, dt, dev.Name, err)
				} else {
					counts[got]++
				}
			}
		}
	}
	if counts["plans"] < want || counts["errors"] < want/10 {
		t.Errorf("got %v, want %d plans and %d errors or more", counts, want, want/10)
	}
}

// hugePlan checks the plan of a case.
func hugePlan(c opspec.Case, dt kernels.Dtype, dev kernels.Device) (what string, wrong error) {
	start := time.Now()
	p, out, err := c.Plan(dt, dev)
	if took := time.Since(start); took > 5*time.Second {
		return "", fmt.Errorf("it took %v to plan", took)
	}
	if err != nil {
		if !regexp.MustCompile(`got .*, want|at most|broadcasts with|too many elements`).MatchString(err.Error()) {
			return "", fmt.Errorf("got the error %w, want one that says what was got and what is wanted", err)
		}
		return "errors", nil
	}
	if err := p.Check(dev); err != nil {
		return "", err
	}
	if n := int64(out.Shape.TotalSize()) * out.Dtype.Size(); p.Out != n {
		return "", fmt.Errorf("got %d bytes of output, want %d", p.Out, n)
	}
	for i, s := range c.Shapes {
		if n := int64(s.TotalSize()) * dt.Size(); p.Inputs[i] < 1 || p.Inputs[i] > n { // a view reads less
			return "", fmt.Errorf("got %d bytes of input %d, want 1 to %d", p.Inputs[i], i, n)
		}
	}
	return "plans", nil
}

// The same holds for functions that plan kernels of arrays and windows, of up to 2^36 elements.
func TestHugeKernels(t *testing.T) {
	const cases, most, want = 4000, 1 << 36, 1500
	r := testutil.Random(t)
	size := func(most ...float64) int64 {
		return int64(math.Exp(r.Float64() * math.Log(most[r.IntN(len(most))]+1)))
	}
	devices := []kernels.Device{kernels.HostDevice()}
	for _, l := range targets {
		devices = append(devices, l.devices()...)
	}
	counts := map[string]int{}
	for range cases {
		dev, dt := devices[r.IntN(len(devices))], []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]
		index := []kernels.Dtype{kernels.Int, kernels.Int32, kernels.Uint8, kernels.Int64}[r.IntN(4)]
		var shape []int
		total := int64(1)
		for range 1 + r.IntN(4) {
			shape = append(shape, int(min(size(1, 40, most), most/total)))
			total *= int64(shape[len(shape)-1])
		}
		axis := r.IntN(len(shape))
		n := int64(shape[axis])
		rows := total / n
		count := min(size(10, most), most/rows)
		var w window.Windows
		for _, a := range []*window.WindowAxis{&w.Rows, &w.Columns} {
			*a = window.WindowAxis{In: int(size(3, 300, 1<<20)), Size: int(size(1, 9, 1000)), Stride: int(size(1, 3, 1000)), Dilation: int(size(1, 1, 3))}
			if r.IntN(2) == 0 {
				a.Before, a.After = r.IntN(a.Size), r.IntN(a.Size)
			}
		}
		windows := float64(w.Rows.In) * float64(w.Columns.In) * float64(w.Rows.Size) * float64(w.Columns.Size)
		images, channels := size(1, 300, max(most/windows, 1)), int64(1)
		if channels = size(1, 300, 1<<20); windows*float64(images)*float64(channels) > most {
			channels = 1
		}
		radius := min(size(3, 300, 1<<30), (n-1)/2)
		for name, plan := range map[string]func() (*kernels.Plan, error){
			"Sum": func() (*kernels.Plan, error) { return reduce.Sum(dev, dt, shape, []int{axis}, false), nil },
			"Dot": func() (*kernels.Plan, error) { return reduce.Dot(dev, dt, rows, n), nil },
			"WindowSum": func() (*kernels.Plan, error) {
				return window.WindowSum(dev, dt, rows, n, radius, window.WindowMode(r.IntN(2))), nil
			},
			"Add":         func() (*kernels.Plan, error) { return basic.Add(dev, dt, total), nil },
			"Broadcast":   func() (*kernels.Plan, error) { return basic.Broadcast(dev, dt, shape, []int{axis}, false), nil },
			"CumSum":      func() (*kernels.Plan, error) { return basic.CumSum(dev, dt, shape, axis, r.IntN(2) == 0) },
			"Gather":      func() (*kernels.Plan, error) { return basic.GatherBy(dev, dt, index, shape, axis, count) },
			"Scatter":     func() (*kernels.Plan, error) { return basic.ScatterBy(dev, dt, index, shape, axis, count) },
			"Pick":        func() (*kernels.Plan, error) { return basic.Pick(dev, dt, index, shape, axis, count) },
			"PickAdjoint": func() (*kernels.Plan, error) { return basic.PickAdjoint(dev, dt, index, shape, axis, count) },
			"TopK":        func() (*kernels.Plan, error) { return basic.TopK(dev, dt, rows, n, 1+r.Int64N(n)) },
			"Categorical": func() (*kernels.Plan, error) { return basic.Categorical(dev, dt, basic.Draws{Rows: rows, N: n}) },
			"Scale":       func() (*kernels.Plan, error) { return basic.Scale(dev, dt, rows, n), nil },
			"Histogram": func() (*kernels.Plan, error) {
				return basic.Histogram(dev, dt, total, basic.Bins{N: int(size(1 << 30))}), nil
			},
			"Im2Col":          func() (*kernels.Plan, error) { return window.Im2Col(dev, dt, images, channels, w) },
			"Col2Im":          func() (*kernels.Plan, error) { return window.Col2Im(dev, dt, images, channels, w) },
			"MaxPool":         func() (*kernels.Plan, error) { return window.MaxPool(dev, dt, images, w) },
			"MaxPoolDiff":     func() (*kernels.Plan, error) { return window.MaxPoolDiff(dev, dt, images, w) },
			"AveragePool":     func() (*kernels.Plan, error) { return window.AveragePool(dev, dt, images, w, 3) },
			"AveragePoolDiff": func() (*kernels.Plan, error) { return window.AveragePoolDiff(dev, dt, images, w, 3) },
		} {
			start := time.Now()
			p, err := plan()
			if err == nil {
				if err = p.Check(dev); err != nil {
					t.Errorf("%s of %v along %d, count %d, or of %d x %d images, %+v, on %s: %v", name, shape, axis, count, images, channels, w, dev.Name, err)
				}
				counts[name]++
			} else if !regexp.MustCompile("want|at most").MatchString(err.Error()) {
				t.Errorf("%s: got the error %v, want one that says what is wanted", name, err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s of %v along %d, or of %d x %d images, %+v, on %s: took %v to plan", name, shape, axis, images, channels, w, dev.Name, took)
			}
		}
	}
	for name, n := range counts {
		if n < want {
			t.Errorf("%s: got %d plans, want %d or more", name, n, want)
		}
	}
}
