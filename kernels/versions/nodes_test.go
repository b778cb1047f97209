package versions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Versions of MatMul for compute capability 9.0 name what they take.
func TestWarpgroupNodes(t *testing.T) {
	g := gorgonia.NewGraph()
	matrix := func(dt tensor.Dtype, rows, cols int) *gorgonia.Node {
		return gorgonia.NewMatrix(g, dt, gorgonia.WithShape(rows, cols), gorgonia.WithName(fmt.Sprint(dt, rows, cols)))
	}
	square, half, double := matrix(gorgonia.Float32, 512, 512), matrix(gorgonia.Float32, 512, 256), matrix(gorgonia.Float64, 512, 512)
	if y, err := versions.Version(9).MatMul(square, square); err != nil || fmt.Sprint(y.Op()) != "MatMul version 9" || !y.Shape().Eq(tensor.Shape{512, 512}) {
		t.Errorf("the product of squares is %v, %v", y, err)
	}
	for name, f := range map[string]func() (*gorgonia.Node, error){
		"oblong":     func() (*gorgonia.Node, error) { return versions.Version(9).MatMul(square, half) },
		"double":     func() (*gorgonia.Node, error) { return versions.Version(9).MatMul(double, double) },
		"transposed": func() (*gorgonia.Node, error) { return versions.Version(9).MatMul(square, square, ops.TransB()) },
	} {
		if y, err := f(); err == nil || !strings.Contains(err.Error(), "version 9: got ") || !strings.Contains(err.Error(), "a multiple of 256, none transposed") {
			t.Errorf("%s: got %v and error %v", name, y, err)
		}
	}
}

// A version adds one node to the graph, the zero Version is the op, and a bad node is
// an error of the op.
func TestNodes(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithShape(3), gorgonia.WithName("x"))
	for v, want := range map[versions.Version]string{0: "Sum[0]", 4: "Sum[0] version 4"} {
		before := len(g.AllNodes())
		y, err := v.Sum(x)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(y.Op()); got != want || len(g.AllNodes()) != before+1 {
			t.Errorf("version %d made %s and %d nodes, want %s and one", v, got, len(g.AllNodes())-before, want)
		}
	}
	s := gorgonia.NewScalar(g, gorgonia.Float64, gorgonia.WithName("s"))
	if y, err := versions.Version(4).Sum(s); err != nil || y != s {
		t.Errorf("the sum of a scalar is %v, %v, want the scalar", y, err)
	}
	if y, err := versions.Version(4).Sum(nil); err == nil || !strings.Contains(err.Error(), "Sum") {
		t.Errorf("the sum of a nil node is %v, %v, want an error that names Sum", y, err)
	}
	for _, op := range []string{"Add", "Dot", "Histogram", "Iterate", "MatMul", "Sum", "WindowSum"} {
		for i, d := range versions.Docs(op) {
			if d.Name == "" || d.Doc == "" {
				t.Errorf("version %d of %s lacks a name or a sentence", i+1, op)
			}
		}
		if versions.Docs(op) == nil {
			t.Errorf("%s has no versions", op)
		}
	}
}
