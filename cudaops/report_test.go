package cudaops

import (
	"io"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestReport(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		h := must.Get[*G.Node](t)(foreign(z))
		must.Do(t, G.Let(a, vector(1, 2)))
		must.Do(t, G.Let(b, vector(1, 2)))
		vm := machine(t, g, on, Timed())
		for range 2 { // the figures are of the last run, not sums
			must.Do(t, vm.RunAll())
		}
		r := vm.Report()
		if r.In() != 32 || r.Out() != 16 || r.Runs != 2 || r.Time <= 0 || r.Peak != 512 || r.Arena != 512 {
			t.Errorf("in %d, out %d, runs %d, time %v, peak %d, arena %d", r.In(), r.Out(), r.Runs, r.Time, r.Peak, r.Arena)
		}
		for _, n := range r.Nodes {
			switch n.Name {
			case z.Name():
				if n.Where != r.Device || len(n.Kernels) != 1 || n.Kernels[0] != "map" || n.Time <= 0 || n.Out != 16 {
					t.Errorf("z: %+v", n)
				}
			case h.Name():
				if n.Where != "host" || len(n.Kernels) != 0 || n.Time <= 0 {
					t.Errorf("h: %+v", n)
				}
			}
		}
		if len(r.Steps) != 2 || r.Steps[0].Where != r.Device || r.Steps[0].Bytes != 48 || r.Steps[1].Where != "host" || r.Steps[1].Reason == "" || r.Steps[0].Time <= 0 {
			t.Errorf("steps %+v", r.Steps)
		}
		text := r.String()
		for _, word := range []string{"map", r.Device, "1 on the host", "copied 32 B in, 16 B out", "512 B"} {
			if !strings.Contains(text, word) {
				t.Errorf("report does not say %q:\n%s", word, text)
			}
		}
	})
}

// Explain shows the program after every pass, and what the report says of the
// graph is there too.
func TestExplain(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
		must.Get[*G.Node](t)(foreign(m.hidden))
		vm := machine(t, m.g, on)
		var b strings.Builder
		must.Do(t, vm.Explain(&b))
		text := b.String()
		for _, word := range []string{"== lower", "== plan", "== transfer", "== place", "kernel MatMul", "host tanh", "no kernel", "tanh(x0)", "copy", "input", "alive at once"} {
			if !strings.Contains(text, word) {
				t.Errorf("Explain does not say %q:\n%s", word, text)
			}
		}
		var again strings.Builder
		must.Do(t, vm.Explain(&again))
		if again.String() != text {
			t.Error("Explain says something else the second time")
		}
		must.Do(t, vm.RunAll())
	})
	if err := (*VM)(nil).Explain(io.Discard); err == nil {
		t.Error("Explain of no VM gives no error")
	}
}
