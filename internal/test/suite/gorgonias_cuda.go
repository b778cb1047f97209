//go:build cuda

package suite

import (
	"github.com/stheno-ml/stheno/cudaops/tape"
	"gorgonia.org/gorgonia"
)

// gorgonias: on a device the tests of package tape run Gorgonia's machines. Without
// one its machines are those of a plain build, panics with Read aside.
var gorgonias = map[bool][]Machine{
	false: nil,
	true: {
		{"TapeMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return tape.NewMachine(g) }},
		{"LispMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
			return tape.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
		}},
	},
}[tape.Available() != nil]
