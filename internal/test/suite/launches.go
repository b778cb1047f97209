package suite

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// plansOf returns the plans of every case, timed and large ones included, and of
// the ops that its derivatives consist of, on devices.
func plansOf(t *testing.T, devices []kernels.Device) (plans []*kernels.Plan) {
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for _, dt := range c.Types {
				in, out, err := c.Nodes(dt, nil)
				if err != nil {
					t.Fatalf("%s %s of %v: %v", s.Name, c.Name, dt, err)
				}
				if differentiableOp(s, c) {
					grad := gorgonia.NewTensor(out.Graph(), values.Tensor(dt), out.Dims(), gorgonia.WithShape(out.Shape()...), gorgonia.WithName("grad"))
					if _, err := out.Op().(gorgonia.SDOp).SymDiff(in, out, grad); err != nil {
						t.Fatalf("%s %s of %v: %v", s.Name, c.Name, dt, err)
					}
				}
				for _, n := range out.Graph().AllNodes() {
					planner, ok := n.Op().(kernels.Planner)
					if !ok { // an input
						continue
					}
					planners := []kernels.Planner{planner}
					if op, ok := planner.(interface {
						Draws() (any, func(stream int) kernels.Planner, bool)
					}); ok {
						if _, drawn, ok := op.Draws(); ok {
							planners[0] = drawn(1)
						}
					}
					if op, ok := planner.(*ops.Op); ok {
						if over, ok := op.InPlace(); ok {
							planners = append(planners, over)
						}
					}
					for _, dev := range devices {
						for _, planner := range planners {
							p, err := planner.Plan(dev)
							if err != nil {
								t.Fatalf("%s %s of %v, %v on %s: %v", s.Name, c.Name, dt, n, dev.Name, err)
							}
							plans = append(plans, p)
						}
					}
				}
			}
		}
	}
	return plans
}

// everyKind returns a device of every kind.
func everyKind() []kernels.Device { return append(opspec.Devices(), kernels.HostDevice()) }

// Launches tests that every launch of every case, on every kind of device, has the arguments that its
// entry point takes. This needs no GPU.
func Launches(t *testing.T) {
	plans := plansOf(t, everyKind())
	var check kernels.Checker // TestImages of package kernels checks the images
	for _, p := range plans {
		if err := check.Check(p); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d plans", len(plans))
}
