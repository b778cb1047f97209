//go:build cuda

package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// Every op, of every type and version, is one that Gorgonia compiles for a device,
// with room there for its inputs and its output. This needs no device.
func TestCompileForDevice(t *testing.T) {
	found := map[kernels.Image]bool{}
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			if c.Composed {
				continue
			}
			for _, dt := range c.Types {
				_, n, err := c.Nodes(dt, nil)
				if err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}
				op, operands, result := ops.OnDevice(n.Op())
				g, bytes := gorgonia.NewGraph(), result.Bytes()
				var in gorgonia.Nodes
				for i, of := range operands {
					in = append(in, gorgonia.NewTensor(g, values.Tensor(of.Dtype), of.Shape.Dims(), gorgonia.WithShape(of.Shape...), gorgonia.WithName(fmt.Sprint("in", i))))
					bytes += of.Bytes()
				}
				if _, err := gorgonia.ApplyOp(op, in...); err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}
				program, _, err := gorgonia.Compile(g)
				if err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}
				if got := program.GPUMemReq()[0]; got < bytes {
					t.Errorf("%v of %v: Gorgonia has %d bytes for it on the device, want %d", op, dt, got, bytes)
				}
				p, err := op.(kernels.Planner).Plan(kernels.Device{Major: 9, SMs: 132, SharedOptin: 227 << 10, Cooperative: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range p.Launches {
					if found[l.Kernel.Image] {
						continue
					}
					if _, err := l.Kernel.Image.Code(9, 0); err != nil {
						t.Errorf("%v of %v: %v", op, dt, err)
					}
					found[l.Kernel.Image] = true
				}
			}
		}
	}
}
