//go:build !cuda

package suite

import "gorgonia.org/gorgonia"

// gorgonias are Gorgonia's own machines.
var gorgonias = []Machine{
	{"TapeMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return gorgonia.NewTapeMachine(g), nil }},
	{"LispMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
		return gorgonia.NewLispMachine(g, gorgonia.ExecuteFwdOnly()), nil
	}},
}
