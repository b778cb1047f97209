package passes

import (
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// Programs of huge values, and of their gradients, are compiled or are errors, without panics, long searches or host memory of that size.
func TestHugeGraphs(t *testing.T) {
	const draws, most, want = 5, 1 << 40, 500
	r, devices := testutil.Random(t), frozenDevices()
	counts := map[string]int{}
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for range draws {
				c := c.Enlarged(r)
				if c.MaxElements() > most || c.Version > 0 {
					continue
				}
				dt, dev := c.Types[r.IntN(len(c.Types))], devices[r.IntN(len(devices))]
				in, out, err := c.Nodes(dt, nil)
				if err != nil {
					continue
				}
				w, kind := &lower.Wanted{Precision: kernels.Precision(r.IntN(4))}, "values"
				if r.IntN(2) == 0 && !s.NoGradient && out.Dtype() == in[0].Dtype() {
					if w.Keep, err = hugeGradients(out, in); err != nil {
						continue // the op has none
					}
					kind = "gradients"
				}
				start := time.Now()
				var graph *lower.Graph
				err = guard.Own("lowering", func() (err error) { graph, err = lower.New(out.Graph(), w); return err })
				if err == nil {
					err = Run(graph.Program, Target{Device: dev, Mixed: []kernels.Precision{kernels.FullPrecision, kernels.BF16}[r.IntN(2)]}, nil)
				}
				if counts[kind]++; err != nil {
					counts["errors"]++
				}
				if took := time.Since(start); took > 5*time.Second || err != nil && strings.Contains(err.Error(), "panicked") {
					t.Errorf("%s of %s %s %v, %v on %s: got the error %v after %v", kind, s.Name, c.Name, c.Shapes, dt, dev.Name, err, took)
				}
			}
		}
	}
	if counts["values"] < want || counts["gradients"] < want || counts["errors"] < want/50 || counts["errors"] > want {
		t.Errorf("got %v, want %d or more of values and gradients, %d to %d of them errors", counts, want, want/50, want)
	}
}

// hugeGradients returns the gradients of the sum of a node.
func hugeGradients(out *G.Node, in G.Nodes) (gradients G.Nodes, err error) {
	err = guard.Recover("Grad", func() error {
		if axes := make([]int, out.Dims()); len(axes) > 0 {
			for a := range axes {
				axes[a] = a
			}
			if out, err = ops.Sum(out, axes...); err != nil {
				return err
			}
		}
		gradients, err = G.Grad(out, in...)
		return err
	})
	return gradients, err
}
