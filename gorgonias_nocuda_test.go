//go:build !cuda

package stheno_test

import "gorgonia.org/gorgonia"

// gorgonias are Gorgonia's own machines.
var gorgonias = []machine{
	{"TapeMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return gorgonia.NewTapeMachine(g), nil }},
	{"LispMachine", func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
		return gorgonia.NewLispMachine(g, gorgonia.ExecuteFwdOnly()), nil
	}},
}
