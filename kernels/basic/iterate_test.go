package basic_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// Grids whose blocks wait for one another are started cooperatively, with a
// multiprocessor for each block.
func TestIterateCoResident(t *testing.T) {
	dev := kernels.Device{Name: "test", Major: 9, SMs: 132, Cooperative: true}
	old := dev
	old.Cooperative, old.Major = false, 8
	clusters := dev
	clusters.Cooperative = false
	for _, c := range []struct {
		name               string
		dev                kernels.Device
		n                  int64
		plan               func(kernels.Device, kernels.Dtype, int64, int, bool) *kernels.Plan
		cooperative, graph bool
		launches           int
	}{
		{"cluster", dev, 128, basic.Iterate, false, false, 1},
		{"held, small", dev, 256, basic.IterateHeld, true, false, 2},
		{"beyond a cluster", dev, 257, basic.Iterate, true, false, 2},
		{"held", dev, 1024, basic.Iterate, true, false, 2},
		{"large", dev, 1025, basic.Iterate, false, true, 20},
		{"too large to be held", dev, 1025, basic.IterateHeld, false, true, 20},
		{"old", old, 128, basic.Iterate, false, true, 20},
		{"not cooperative", clusters, 128, basic.IterateHeld, false, false, 1},
	} {
		p := c.plan(c.dev, kernels.Float32, c.n, 10, false)
		l := p.Launches[len(p.Launches)-1]
		if l.CoResident != c.cooperative || l.Cooperative != c.cooperative || p.Graph != c.graph || len(p.Launches) != c.launches {
			t.Errorf("%s, n = %d: co-resident %v, cooperative %v, graph %v, %d launches, want %v, %v, %v, %d",
				c.name, c.n, l.CoResident, l.Cooperative, p.Graph, len(p.Launches), c.cooperative, c.cooperative, c.graph, c.launches)
		}
		if l.CoResident && l.Grid[0] > c.dev.SMs {
			t.Errorf("%s, n = %d: %d blocks that wait for one another on %d multiprocessors", c.name, c.n, l.Grid[0], c.dev.SMs)
		}
	}
}
