package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BadInput tests that every constructor names what is wrong with its input, and never panics.
func BadInput(t *testing.T) {
	for _, s := range opspec.All() {
		check := func(name, want string, build func(g *gorgonia.ExprGraph) (*gorgonia.Node, error)) {
			t.Run(s.Name+"/"+name, func(t *testing.T) {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("panic: %v", p)
					}
				}()
				switch n, err := build(gorgonia.NewGraph()); {
				case err == nil:
					t.Errorf("got node %v and no error", n)
				case !strings.Contains(err.Error(), ": "+s.Name):
					t.Errorf("the error does not name %s: %v", s.Name, err)
				case !strings.Contains(err.Error(), want):
					t.Errorf("the error does not say %q: %v", want, err)
				}
			})
		}
		for _, b := range s.Bad {
			check(b.Name, b.Want, func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
				var in gorgonia.Nodes
				for _, shape := range b.Shapes {
					in = append(in, variable(g, tensor.Float64, shape...))
				}
				return b.Build(in...)
			})
		}
		c := s.Cases[0]
		for i, shape := range c.Shapes { // what is wrong for every op
			with := func(what, want string, bad func(g *gorgonia.ExprGraph) *gorgonia.Node) {
				check(fmt.Sprintf("%s as input %d", what, i), want, func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
					in := make(gorgonia.Nodes, len(c.Shapes))
					for k, shape := range c.Shapes {
						in[k] = variable(g, tensor.Float32, shape...)
					}
					in[i] = bad(g)
					return c.Build(in...)
				})
			}
			with("nil", "got a nil node", func(*gorgonia.ExprGraph) *gorgonia.Node { return nil })
			if !s.AnyType {
				with("bool", "got bool", func(g *gorgonia.ExprGraph) *gorgonia.Node { return variable(g, tensor.Bool, shape...) })
			}
			with("an empty tensor", "want at least one element", func(g *gorgonia.ExprGraph) *gorgonia.Node { return variable(g, tensor.Float32, 3, 0) })
			with("a node without shape", "has no shape yet", func(g *gorgonia.ExprGraph) *gorgonia.Node {
				return gorgonia.NewTensor(g, tensor.Float32, 2, gorgonia.WithName("x"))
			})
			if !s.AnyType && !slices.Contains(s.Types, kernels.Int) {
				with("int", "got int, want float32 or float64", func(g *gorgonia.ExprGraph) *gorgonia.Node { return variable(g, tensor.Int, shape...) })
			}
			if len(c.Shapes) == 1 {
				continue
			}
			if !s.Mixed {
				with("float64 among float32", "want one type", func(g *gorgonia.ExprGraph) *gorgonia.Node { return variable(g, tensor.Float64, shape...) })
			}
			with("a node of another graph", "of another graph", func(*gorgonia.ExprGraph) *gorgonia.Node {
				return variable(gorgonia.NewGraph(), tensor.Float32, shape...)
			})
			if at := slices.IndexFunc(s.Cases, severalElements); at >= 0 { // one element broadcasts
				check(fmt.Sprintf("another shape as input %d", i), "", func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
					var in gorgonia.Nodes
					for _, shape := range s.Cases[at].Shapes {
						in = append(in, variable(g, tensor.Float32, shape...))
					}
					in[i] = variable(g, tensor.Float32, 97, 89, 83, 79)
					return s.Cases[at].Build(in...)
				})
			}
		}
	}
}

// severalElements reports whether each input of a case has several elements.
func severalElements(c opspec.Case) bool {
	return !slices.ContainsFunc(c.Shapes, func(s tensor.Shape) bool { return s.TotalSize() == 1 })
}

func variable(g *gorgonia.ExprGraph, dt tensor.Dtype, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName("x"))
}
