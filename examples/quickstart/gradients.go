package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The ops of the model, each with small inputs, and finally the whole loss.
var expressions = []struct {
	name   string
	build  func(in ...*G.Node) (*G.Node, error)
	shapes []tensor.Shape
}{
	{"ops.MatMul", func(in ...*G.Node) (*G.Node, error) { return ops.MatMul(in[0], in[1]) }, []tensor.Shape{{5, 7}, {7, 3}}},
	{"ops.Broadcast", func(in ...*G.Node) (*G.Node, error) { return ops.Broadcast(in[0], 5, 0) }, []tensor.Shape{{7}}},
	{"ops.Add", binary(ops.Add), []tensor.Shape{{5, 7}, {5, 7}}},
	{"ops.Dot", binary(ops.Dot), []tensor.Shape{{5, 7}, {5, 7}}},
	{"ops.Mean", func(in ...*G.Node) (*G.Node, error) { return ops.Mean(in[0]) }, []tensor.Shape{{11}}},
	{"ops.Sum", func(in ...*G.Node) (*G.Node, error) { return ops.Sum(in[0]) }, []tensor.Shape{{11}}},
	{"Tanh", unary(G.Tanh), []tensor.Shape{{5, 7}}},
	{"LogSoftMax", func(in ...*G.Node) (*G.Node, error) { return G.LogSoftMax(in[0]) }, []tensor.Shape{{5, 7}}},
	{"Neg", unary(G.Neg), []tensor.Shape{{}}},
	{"HadamardProd", binary(G.HadamardProd), []tensor.Shape{{}, {}}},
	{"the loss", func(in ...*G.Node) (*G.Node, error) {
		x, y, w1, b1, w2, b2 := in[0], in[1], in[2], in[3], in[4], in[5]
		return objective(logProbabilities(x, w1, b1, w2, b2), y, w1, w2), nil
	}, []tensor.Shape{{5, 7}, {5, 3}, {7, 4}, {4}, {4, 3}, {3}}},
}

func unary(f func(*G.Node) (*G.Node, error)) func(...*G.Node) (*G.Node, error) {
	return func(in ...*G.Node) (*G.Node, error) { return f(in[0]) }
}

func binary(f func(a, b *G.Node) (*G.Node, error)) func(...*G.Node) (*G.Node, error) {
	return func(in ...*G.Node) (*G.Node, error) { return f(in[0], in[1]) }
}

// checkGradients compares the gradients that gorgonia.Grad makes of each expression, run in float32
// where the model will run, with central differences in float64.
func checkGradients(w io.Writer, o options) error {
	machine := gradcheck.Machine(func(g *G.ExprGraph) (G.VM, error) { return newMachine(g, o.device) })
	for _, e := range expressions {
		inputs, err := gradcheck.Random(o.seed, tensor.Float32, e.shapes...)
		if err != nil {
			return err
		}
		err = gradcheck.Check(e.build, inputs, machine, gradcheck.Modes(gradcheck.SymDiff), gradcheck.Seed(o.seed))
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		fmt.Fprintf(w, "  %-14s right by every element of %s\n", e.name, shapes(e.shapes))
	}
	return nil
}

func shapes(s []tensor.Shape) string {
	names := make([]string, len(s))
	for i, shape := range s {
		if names[i] = strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(shape)), " ", "x"), "[]"); len(shape) == 0 {
			names[i] = "scalar"
		}
	}
	return strings.Join(names, ", ")
}
