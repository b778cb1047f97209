package stheno_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
)

// launched are devices of the kinds that plans tell apart.
var launched = []kernels.Device{
	kernels.HostDevice(),
	{Name: "Volta", Major: 7, SMs: 80, SharedOptin: 96 << 10, L2: 6 << 20, Cooperative: true},
	{Name: "Ampere", Major: 8, SMs: 108, SharedOptin: 163 << 10, L2: 40 << 20, Cooperative: true},
	{Name: "Hopper", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20, Cooperative: true},
	{Name: "Blackwell", Major: 10, SMs: 148, SharedOptin: 227 << 10, L2: 126 << 20, Cooperative: true},
}

// Every launch of every case, on every kind of device, has the arguments that its
// entry point takes. This needs no GPU.
func TestLaunches(t *testing.T) {
	var plans []*kernels.Plan
	for _, s := range ops.All() {
		for _, dt := range s.Dtypes() {
			for _, c := range s.Cases {
				for _, dev := range launched {
					p, _, err := planOf(c, dt, dev)
					if err != nil {
						t.Fatalf("%s %s of %v on %s: %v", s.Name, c.Name, dt, dev.Name, err)
					}
					plans = append(plans, p)
				}
			}
		}
	}
	for _, variant := range versions.IncrementVariants() {
		p, err := versions.Increment(variant, 4, 256)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		plans = append(plans, versions.Ripple(dt, 3, 2), versions.RippleRacy(dt, 3, 2), versions.DotPartials(dt, 1000))
	}
	if err := kernels.Check(kernels.Builtin(), plans...); err != nil {
		t.Error(err)
	}
	if err := kernels.Check(versions.Library()); err != nil {
		t.Error(err)
	}
	t.Logf("%d plans", len(plans))
}
