package graphspec

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// maker makes a VM on a device.
type maker func(g *gorgonia.ExprGraph, opts ...cudaops.Option) (*cudaops.VM, error)

// devices are those whose nodes are looked at, by name.
func devices(t *testing.T) map[string]maker {
	list := map[string]maker{"host": func(g *gorgonia.ExprGraph, opts ...cudaops.Option) (*cudaops.VM, error) {
		return cudaops.NewVM(g, append(opts, cudaops.OnHost())...)
	}}
	if _, gpu := machines(t)["GPU"]; gpu {
		list["GPU"] = cudaops.NewVM
	}
	return list
}

// On each device every node has the value that Gorgonia's op makes of the values of its
// children there, run after run to the bit, and a run for the outputs alone, whose
// instructions are fused, computes the same outputs as one that keeps all values.
//
// So what is wrong shows where it begins: what a node's inputs, and decisions that rounding takes,
// do to it does not count. With -v the worst nodes are listed, with how far they are from
// the host's, too.
func TestNodes(t *testing.T) {
	for name, vm := range devices(t) {
		t.Run(name, func(t *testing.T) {
			cases, block := small(), random(t)
			if name != "host" && !testing.Short() { // sizes that have the kernels of large products
				cases = append(cases, MLP(128, 784, 512, 512, 10), MLP(4096, 784, 512, 512, 10), Convnet(100, example))
			}
			for _, c := range cases {
				in := c.Values(block)
				found := look(t, c, in, vm)
				for _, f := range found {
					if f.wrong() {
						t.Errorf("%s %s: %v", c.Name, c.Size, f)
					}
				}
				t.Logf("%s %s\n%v", c.Name, c.Size, worst(found, 12))
				sameOutputs(t, c, in, vm)
			}
		})
	}
}

// A wrong element of a node's value is seen there, and not in values computed from it.
func TestNodesAreSeen(t *testing.T) {
	c := Convnet(3, net{9, []int{3, 4, 2}, 7, 3})
	in := c.Values(random(t))
	g, _ := c.Graph(in)
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnHost(), cudaops.KeepAll()))
	defer vm.Close()
	testutil.Do(t, vm.RunAll())
	seen := 0
	for i, n := range ordered(t, g) {
		x, numbers := floats(n.Value())
		if children := testutil.Get[gorgonia.Nodes](t)(internal.Children(n)); len(children) == 0 || !numbers {
			continue
		}
		at := (i * 7919) % len(x)
		right := x[at]
		x[at] += 1
		if f := lookAt(t, n); f.wrong() {
			seen++
		} else {
			t.Errorf("element %d of %d is off by 1: %v", at, len(x), f)
		}
		x[at] = right
	}
	if seen < 20 {
		t.Errorf("%d nodes were looked at", seen)
	}
}

// finding is a finding about a node's value.
type finding struct {
	place   int // in the order of the run
	node    *gorgonia.Node
	off     float64 // difference from the op's result on its children's values; see apart
	host    float64 // difference from its value on the host backend
	changes bool    // whether its value changes from run to run
	err     error   // of the op
}

func (f finding) wrong() bool { return f.changes || f.err != nil || !(f.off <= 1e-5) }

func (f finding) String() string {
	s := fmt.Sprintf("%4d  %-60.60s off %.2g, from the host %.2g", f.place, fmt.Sprint(f.node), f.off, f.host)
	if f.changes {
		s += ", others from run to run"
	}
	if f.err != nil {
		s += fmt.Sprintf(", %v", f.err)
	}
	return s
}

// look runs a case twice with all values kept, on a device and on the host, and returns
// what it finds, by node.
func look(t *testing.T, c Case, in []gorgonia.Value, machine maker) (list []finding) {
	t.Helper()
	g, _ := c.Graph(in)
	vm := testutil.Get[*cudaops.VM](t)(machine(g, cudaops.KeepAll()))
	defer vm.Close()
	testutil.Do(t, vm.RunAll())
	nodes := ordered(t, g)
	first := make([][]byte, len(nodes))
	for i, n := range nodes {
		first[i] = memory(n.Value())
	}
	testutil.Do(t, vm.RunAll())
	other, _ := c.Graph(in)
	host := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(other, cudaops.OnHost(), cudaops.KeepAll()))
	defer host.Close()
	testutil.Do(t, host.RunAll())
	others := ordered(t, other)
	for i, n := range nodes {
		f := lookAt(t, n)
		f.place, f.changes = i, !bytes.Equal(memory(n.Value()), first[i])
		f.host = apart(n.Value(), others[i].Value(), nil)
		list = append(list, f)
	}
	return list
}

// lookAt compares a node's value with the result of its op on the values of its children.
func lookAt(t *testing.T, n *gorgonia.Node) (f finding) {
	f.node = n
	if n.Op() == nil {
		return f
	}
	var args []gorgonia.Value
	for _, child := range testutil.Get[gorgonia.Nodes](t)(internal.Children(n)) {
		args = append(args, testutil.Get[gorgonia.Value](t)(gorgonia.CloneValue(child.Value()))) // some ops write into them
	}
	defer func() {
		if r := recover(); r != nil {
			f.err = fmt.Errorf("%v panics: %v", n.Op(), r)
		}
	}()
	var terms, want gorgonia.Value
	if len(args) == 1 { // of a sum, perhaps, in which they may cancel
		terms, _ = gorgonia.CloneValue(args[0])
	}
	if want, f.err = n.Op().Do(args...); f.err == nil {
		f.off = apart(n.Value(), want, terms)
	}
	return f
}

// apart is the norm of the difference of two values over that of the second or, if it is
// greater, that of terms, unless they are nil. It is infinite for values of other types or
// numbers of elements and for NaN, and 0 for those without numbers.
func apart(got, want, terms gorgonia.Value) float64 {
	if got == nil || want == nil {
		return math.Inf(1)
	}
	x, numbers := floats(got)
	y, wanted := floats(values.Compact(want))
	if !numbers && !wanted {
		return 0
	}
	if len(x) != len(y) {
		return math.Inf(1)
	}
	scale := norm(y)
	if terms != nil {
		z, _ := floats(terms)
		scale = max(scale, norm(z))
	}
	difference := make([]float32, len(y))
	for i := range y {
		difference[i] = x[i] - y[i]
	}
	switch d := norm(difference); {
	case d == 0:
		return 0
	case math.IsNaN(d / scale):
		return math.Inf(1)
	default:
		return d / scale
	}
}

func norm(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

// floats returns the elements of a value of float32.
func floats(v gorgonia.Value) ([]float32, bool) {
	if dt, ok := values.Dtype(v.Dtype()); !ok || dt != kernels.Float32 {
		return nil, false
	}
	m, err := values.Bytes(v)
	return kernels.Elements[float32](m), err == nil
}

// memory returns a copy of a value's elements.
func memory(v gorgonia.Value) []byte {
	m, _ := values.Bytes(v)
	return bytes.Clone(m)
}

// ordered returns the nodes of a graph that have values, each behind its children.
func ordered(t *testing.T, g *gorgonia.ExprGraph) (nodes gorgonia.Nodes) {
	sorted := testutil.Get[gorgonia.Nodes](t)(internal.Sort(g))
	slices.Reverse(sorted)
	for _, n := range sorted {
		if n.Value() != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// worst lists the worst findings, in the order of the run.
func worst(list []finding, most int) string {
	list = slices.DeleteFunc(slices.Clone(list), func(f finding) bool { return f.off == 0 && f.host == 0 && !f.wrong() })
	slices.SortFunc(list, func(a, b finding) int { return cmp.Or(cmp.Compare(b.off, a.off), cmp.Compare(b.host, a.host)) })
	list = list[:min(most, len(list))]
	slices.SortFunc(list, func(a, b finding) int { return a.place - b.place })
	lines := make([]string, len(list))
	for i, f := range list {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// sameOutputs compares two runs for the outputs alone with each other, to the bit, with one
// that keeps all values, and with the reference.
func sameOutputs(t *testing.T, c Case, in []gorgonia.Value, machine maker) {
	t.Helper()
	var outputs [3][]gorgonia.Value
	for i, opts := range [][]cudaops.Option{nil, nil, {cudaops.KeepAll()}} {
		outputs[i] = run(t, c, in, func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return machine(g, opts...) })
	}
	for k, o := range c.Outputs {
		if !bytes.Equal(memory(outputs[0][k]), memory(outputs[1][k])) {
			t.Errorf("%s %s: %s has other bits from run to run", c.Name, c.Size, o.Name)
		}
		if d := apart(outputs[0][k], outputs[2][k], nil); !(d <= 1e-5) {
			t.Errorf("%s %s: %s is %.2g from its value where all values are kept", c.Name, c.Size, o.Name, d)
		}
	}
	if worst, err := c.Check(in, outputs[0]); err != nil || !(worst.Share <= 1) {
		t.Errorf("%s %s: error %v, %v", c.Name, c.Size, worst, err)
	} else {
		t.Logf("%s %s: error %v", c.Name, c.Size, worst)
	}
}
