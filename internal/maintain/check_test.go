package maintain

import (
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var hopper = kernels.Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Memory: 80 << 30}

// Every case that is timed is one op with a plan, and its name is its own.
func TestTimedCasesHavePlans(t *testing.T) {
	seen, inBoth := map[string]bool{}, 0
	for _, bc := range Cases(records.Ops, true) {
		c := bc.(Op)
		if name := c.Key().String(); seen[name] {
			t.Errorf("two cases are named %s", name)
		} else {
			seen[name] = true
		}
		if c.Dtype == kernels.Float64 {
			inBoth++
		}
		p, _, err := c.Case.Plan(c.Dtype, hopper)
		if err != nil {
			t.Errorf("%v: %v", c.Key(), err)
			continue
		}
		if len(p.Launches) == 0 || p.Flops <= 0 || p.Bytes() < 1<<20 && p.Flops < 1<<20 {
			t.Errorf("%v: %d launches, %d operations, %d bytes: too little to time", c.Key(), len(p.Launches), p.Flops, p.Bytes())
		}
	}
	if inBoth != 6 {
		t.Errorf("%d cases are timed in float64 too, want 6, one for each kind of kernel", inBoth)
	}
}

// check accepts the result of the host in the case's own type, and refuses one
// wrong or unwritten element, whether it looks at all of it or at some rows.
func TestCheck(t *testing.T) {
	block := NewBlock(1, 100_003)
	for _, spec := range opspec.All() {
		for _, dt := range spec.Types {
			if spec.Generated {
				continue // never timed
			}
			if dt != kernels.Uint8 && !dt.IsFloat() {
				continue // the block has no such elements
			}
			c := Op{Spec: spec, Case: spec.Cases[len(spec.Cases)/2], Dtype: dt}
			for i := range spec.Cases {
				if s := spec.Cases[i]; s.Tested() && !s.Composed && s.Shapes[0].TotalSize() > 50 && s.Shapes[0].TotalSize() < 1e5 {
					c.Case = s
					break
				}
			}
			testCheck(t, c, block, affordable, "all")
		}
	}
	// Rows of a matrix, columns of a transposed one, and batches, whose inputs go together.
	for _, rows := range []struct {
		op     string
		shapes []tensor.Shape
	}{{"TransA", []tensor.Shape{{300, 21}, {300, 20}}}, {"TransB", []tensor.Shape{{30, 30}, {30, 30}}}, {"MatMul", []tensor.Shape{{16, 300}, {300, 20}}}, {"MatMul", []tensor.Shape{{19, 5, 30}, {19, 30, 20}}}, {"Attention", []tensor.Shape{{17, 3, 4, 8}, {17, 3, 6, 8}, {17, 3, 6, 8}}}} {
		name, kind := rows.op, ""
		if strings.HasPrefix(name, "Trans") {
			name, kind = "MatMul", "["+name+"]"
		}
		spec := opspec.All()[slices.IndexFunc(opspec.All(), func(s opspec.Spec) bool { return s.Name == name })]
		c := spec.Cases[slices.IndexFunc(spec.Cases, func(c opspec.Case) bool { return len(c.Shapes) == len(rows.shapes) && strings.Contains(c.Name, kind) })]
		c.Shapes = rows.shapes
		testCheck(t, Op{Spec: spec, Case: c, Dtype: kernels.Float32}, block, 0, "16 rows")
	}
}

func testCheck(t *testing.T, c Op, block Block, limit int64, want string) {
	t.Helper()
	p, _, err := c.Case.Plan(c.Dtype, kernels.HostDevice())
	if err != nil {
		t.Fatalf("%v: %v", c.Key(), err)
	}
	inputs := make([][]byte, len(p.Inputs))
	for i, n := range p.Inputs {
		inputs[i] = block.Fill(c.Dtype, n, i)
	}
	out := kernels.Bytes(make([]float64, (p.Out+7)/8))[:p.Out]
	if err := p.Run(inputs, out, nil); err != nil {
		t.Fatalf("%v: %v", c.Key(), err)
	}
	what, worst, err := c.check(p, inputs, out, limit)
	if err != nil || what != want || !(worst <= 1) {
		t.Errorf("%v: check of a right result: %q, %v, %v, want %q and at most 1", c.Key(), what, worst, err, want)
	}
	for _, wrong := range []float64{math.NaN(), math.Inf(1), 7e9} {
		if c.Spec.Exact {
			kernels.Elements[int64](out)[p.Out/16]++
			if _, worst, err := c.check(p, inputs, out, limit); err == nil && worst <= 1 {
				t.Errorf("%v: check did not see a count too many", c.Key())
			}
			return
		}
		size := c.Dtype.Size()
		k := p.Out / size / 2
		for i := k; i <= k || limit == 0 && i < p.Out/size; i++ { // 16 rows of fewer than 32 meet the last half
			if c.Dtype == kernels.Float32 {
				kernels.Elements[float32](out)[i] = float32(wrong)
			} else {
				kernels.Elements[float64](out)[i] = wrong
			}
		}
		if _, worst, err := c.check(p, inputs, out, limit); err == nil && worst <= 1 {
			t.Errorf("%v: check did not see %v in element %d", c.Key(), wrong, k)
		}
	}
}

// difference is a - b in the shape of an Add, whose value on absolute inputs does
// not bound the terms of an element.
type difference struct {
	gorgonia.Op
	body func(kernels.Call)
}

func (difference) String() string        { return "difference" }
func (difference) WriteHash(h hash.Hash) { io.WriteString(h, "difference") }
func (difference) OverwritesInput() int  { return -1 }
func (d difference) Plan(dev kernels.Device) (*kernels.Plan, error) {
	p, err := d.Op.(kernels.Planner).Plan(dev)
	if err != nil {
		return nil, err
	}
	p.Launches = []kernels.Launch{{Kernel: &kernels.Kernel{Body: d.body}}}
	return p, nil
}

func subtract[T kernels.Float](c kernels.Call) {
	a, b, out := kernels.Slice[T](c, kernels.In(0)), kernels.Slice[T](c, kernels.In(1)), kernels.Slice[T](c, kernels.At(kernels.Out, 0))
	for i := range out {
		out[i] = a[i] - b[i]
	}
}

// A right difference of random numbers, of which many cancel, passes; one that is
// off by more than the spec allows does not.
func TestCheckOfADifference(t *testing.T) {
	c := opspec.Case{
		Name: "difference", Shapes: []tensor.Shape{{1000}, {1000}},
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			sum, err := ops.Add(in[0], in[1])
			if err != nil {
				return nil, err
			}
			body := subtract[float64]
			if in[0].Dtype() == tensor.Float32 {
				body = subtract[float32]
			}
			return gorgonia.ApplyOp(difference{sum.Op(), body}, in...)
		},
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			for i, a := range in[0] {
				out, magnitude = append(out, a-in[1][i]), append(magnitude, math.Abs(a)+math.Abs(in[1][i]))
			}
			return out, magnitude
		},
		Magnitude: func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(in[0], in[1]) },
	}
	difference := Op{Spec: opspec.Spec{Name: "Difference", Tolerance: 1}, Case: c, Dtype: kernels.Float32}
	testCheck(t, difference, NewBlock(1, 100_003), affordable, "all")

	p, _, err := c.Plan(kernels.Float32, kernels.HostDevice())
	if err != nil {
		t.Fatal(err)
	}
	a, b, out := make([]float32, 1000), make([]float32, 1000), make([]float32, 1000)
	for i := range a {
		a[i], b[i] = 1+float32(i)*0x1p-23, 1
		out[i] = float32(i) * 0x1p-23
	}
	in := [][]byte{kernels.Bytes(a), kernels.Bytes(b)}
	for wrong, fails := range map[float32]bool{0: false, 1 * 0x1p-23: false, 3 * 0x1p-23: true} {
		out[500] = 500*0x1p-23 + wrong
		if _, worst, err := difference.check(p, in, kernels.Bytes(out), affordable); err != nil || (worst > 1) != fails {
			t.Errorf("an element off by %g: %v of the allowed error, %v, want more than 1: %v", wrong, worst, err, fails)
		}
	}
}

func TestRepeatCoversAllElements(t *testing.T) {
	b := []float32{1, 2, 3}
	got := repeat(b, 8, 0)
	for i, x := range got {
		if x != b[i%3] {
			t.Fatalf("got %v", got)
		}
	}
}

// The case of a text is its bytes over and over, and as many as the text that it
// stands for; an empty file would never end.
func TestText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("abc"), 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := Text(path)
	if err != nil {
		t.Fatal(err)
	}
	plan, _, err := c.Case.Plan(c.Dtype, kernels.HostDevice())
	if err != nil {
		t.Fatal(err)
	}
	text, counts := make([]byte, plan.Inputs[0]), make([]int64, plan.Out/8)
	c.Case.Fill(text)
	if err := plan.Run([][]byte{text}, kernels.Bytes(counts), nil); err != nil {
		t.Fatal(err)
	}
	for k, n := range counts {
		want := int64(0)
		if k >= 'a' && k <= 'c' {
			want = (5_800_000 + int64('c'-k)) / 3
		}
		if n != want {
			t.Errorf("%q: %d times, want %d", rune(k), n, want)
		}
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Text(path); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty text: %v, want an error that says so", err)
	}
}
