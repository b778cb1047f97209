package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// integersOf draws integers below a limit, of a type.
func integersOf(r *rand.Rand, dt tensor.Dtype, limit int, shape ...int) (*tensor.Dense, []int) {
	v := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	list := make([]int, v.Size())
	for i := range list {
		list[i] = r.IntN(limit)
		switch s := v.Data().(type) {
		case []uint8:
			s[i] = uint8(list[i])
		case []int32:
			s[i] = int32(list[i])
		case []int64:
			s[i] = int64(list[i])
		case []int:
			s[i] = list[i]
		}
	}
	return v, list
}

// integerTypes are the element types of indices.
var integerTypes = []tensor.Dtype{tensor.Byte, tensor.Int32, tensor.Int64, tensor.Int}

// A loss by one-hot rows of integer labels, its gradient, and the share of rows whose greatest logit is the label's: nothing is on the
// host, and the gradient is the softmax less the one-hot rows.
func TestLabelsOnDevice(t *testing.T) {
	const rows, classes = 33, 7
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range integerTypes {
			r := testutil.Random(t)
			v, list := integersOf(r, dt, classes, rows)
			logits := draw(r, tensor.Float64, rows, classes)
			g := G.NewGraph()
			x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(rows, classes), G.WithValue(logits))
			labels := G.NewVector(g, dt, G.WithName("labels"), G.WithShape(rows), G.WithValue(v))
			hot := testutil.Get[*G.Node](t)(ops.OneHot(labels, classes, tensor.Float64))
			logp := testutil.Get[*G.Node](t)(ops.LogSoftMax(x, 1))
			loss := testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Map("-a*b", logp, hot))))
			best := testutil.Get[*G.Node](t)(ops.ArgMax(x, -1))
			right := testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Equal(best, labels))))
			dx := testutil.Get[G.Nodes](t)(G.Grad(loss, x))[0]
			vm := machine(t, g, on, Keep(dx, best, right))
			testutil.Do(t, vm.RunAll())
			if got := onTheHost(vm.Report()); len(got) > 0 {
				t.Errorf("%v: on the host: got %v, want nothing", dt, got)
			}
			data, grad := logits.Data().([]float64), dx.Value().Data().([]float64)
			count := int64(0)
			for i := range rows {
				row := data[i*classes:][:classes]
				sum, greatest := 0.0, 0
				for k, v := range row {
					sum += math.Exp(v)
					if v > row[greatest] {
						greatest = k
					}
				}
				if greatest == list[i] {
					count++
				}
				if got := best.Value().Data().([]int)[i]; got != greatest {
					t.Errorf("%v: the greatest of row %d is at %d, want %d", dt, i, got, greatest)
				}
				for k, v := range row {
					want := math.Exp(v) / sum
					if k == list[i] {
						want--
					}
					if got := grad[i*classes+k]; math.Abs(got-want) > 1e-14 {
						t.Errorf("%v: the gradient of row %d at %d is %v, want %v", dt, i, k, got, want)
					}
				}
			}
			if got := right.Value().Data().(int64); got != count {
				t.Errorf("%v: %d rows are right, want %d", dt, got, count)
			}
		}
	})
}

// Ids out of range are an error on every backend and on Gorgonia's machine, whether they are inputs or computed.
func TestIdsOutside(t *testing.T) {
	build := func(t *testing.T, dt tensor.Dtype, bad int, computed bool) *G.ExprGraph {
		g := G.NewGraph()
		v, _ := integersOf(rand.New(rand.NewPCG(1, 1)), dt, 4, 3)
		switch s := v.Data().(type) {
		case []uint8:
			s[2] = uint8(bad)
		case []int32:
			s[2] = int32(bad)
		case []int64:
			s[2] = int64(bad)
		case []int:
			s[2] = bad
		}
		ids := G.NewVector(g, dt, G.WithName("ids"), G.WithShape(3), G.WithValue(v))
		if computed {
			ids = testutil.Get[*G.Node](t)(ops.Map("a * 1 + 0 * a", ids))
		}
		testutil.Get[*G.Node](t)(ops.OneHot(ids, 4, tensor.Float32))
		return g
	}
	for _, dt := range integerTypes {
		for _, computed := range []bool{false, true} {
			for _, bad := range []int{4, -1} {
				if dt == tensor.Byte && bad < 0 {
					continue
				}
				want := fmt.Sprintf("got index %d at 2, want 0 to 3", bad)
				onBackends(t, func(t *testing.T, on Option) {
					if err := machine(t, build(t, dt, bad, computed), on).RunAll(); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%v, computed %v: got the error %v, want one with %q", dt, computed, err, want)
					}
				})
				tape := tapeMachine(t, build(t, dt, bad, computed))
				if err := tape.RunAll(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Gorgonia's machine: %v, computed %v: got the error %v, want one with %q", dt, computed, err, want)
				}
				testutil.Do(t, tape.Close())
			}
		}
	}
}

// A text as bytes stays on the device, a byte a letter, and runs gather rows of it.
func TestResidentBytes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const rows, columns, batch = 1000, 32, 5
		r := testutil.Random(t)
		text, list := integersOf(r, tensor.Byte, 256, rows, columns)
		g := G.NewGraph()
		data := G.NewMatrix(g, tensor.Byte, G.WithName("text"), G.WithShape(rows, columns), G.WithValue(text))
		at := G.NewVector(g, tensor.Int, G.WithName("rows"), G.WithShape(batch))
		lines := testutil.Get[*G.Node](t)(G.ByIndices(data, at, 0))
		next := testutil.Get[*G.Node](t)(ops.Slice(lines, nil, G.S(1, columns)))
		letters := testutil.Get[*G.Node](t)(ops.Slice(lines, nil, G.S(0, columns-1)))
		same := testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Equal(letters, next)), 1))
		hot := testutil.Get[*G.Node](t)(ops.OneHot(letters, 256, tensor.Float32))
		counts := testutil.Get[*G.Node](t)(ops.Sum(hot, 0, 1))
		vm := machine(t, g, on, Resident(data), Keep(same, counts))
		for range 2 {
			index := make([]int, batch)
			for i := range index {
				index[i] = r.IntN(rows)
			}
			testutil.Do(t, G.Let(at, tensor.New(tensor.WithBacking(index))))
			testutil.Do(t, vm.RunAll())
			vm.Reset()
			want, wantCounts := make([]int64, batch), make([]float32, 256)
			for i, row := range index {
				for k := range columns - 1 {
					wantCounts[list[row*columns+k]]++
					if list[row*columns+k] == list[row*columns+k+1] {
						want[i]++
					}
				}
			}
			if got := same.Value().Data().([]int64); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := counts.Value().Data().([]float32); !slices.Equal(got, wantCounts) {
				t.Errorf("got counts %v, want %v", got, wantCounts)
			}
		}
		if got := onTheHost(vm.Report()); len(got) > 0 {
			t.Errorf("on the host: got %v, want nothing", got)
		}
	})
}

// Gorgonia's own arithmetic and comparisons of integers, on the device, have the values of its machine.
func TestGorgoniasIntegersOnDevice(t *testing.T) {
	type binary = func(a, b *G.Node) (*G.Node, error)
	returns := func(f func(a, b *G.Node, retSame bool) (*G.Node, error), same bool) binary {
		return func(a, b *G.Node) (*G.Node, error) { return f(a, b, same) }
	}
	onBackends(t, func(t *testing.T, on Option) {
		for name, f := range map[string]binary{
			"add": G.Add, "sub": G.Sub, "mul": G.HadamardProd, "lt": returns(G.Lt, false), "gte": returns(G.Gte, true), "eq": returns(G.Eq, false), "ne": returns(G.Ne, true), "gt": returns(G.Gt, true), "lte": returns(G.Lte, false),
		} {
			for _, dt := range integerTypes {
				r := testutil.Random(t)
				g := G.NewGraph()
				var in G.Nodes
				for _, name := range []string{"a", "b"} {
					v, _ := integersOf(r, dt, 9, 4, 5)
					in = append(in, G.NewMatrix(g, dt, G.WithName(name), G.WithShape(4, 5), G.WithValue(v)))
				}
				out := testutil.Get[*G.Node](t)(f(in[0], in[1]))
				vm := machine(t, g, on)
				testutil.Do(t, vm.RunAll())
				got := fmt.Sprint(out.Value().Dtype(), out.Value().Data())
				if names := onTheHost(vm.Report()); len(names) > 0 {
					t.Errorf("%s of %v: on the host: got %v, want nothing", name, dt, names)
				}
				tape := tapeMachine(t, g)
				testutil.Do(t, tape.RunAll())
				if want := fmt.Sprint(out.Value().Dtype(), out.Value().Data()); got != want {
					t.Errorf("%s of %v: got %s, want %s", name, dt, got, want)
				}
				testutil.Do(t, tape.Close())
			}
		}
	})
}

// Gradients pass integers and bool by, by Grad and on the machine of dual values.
func TestGradientsPassIntegers(t *testing.T) {
	build := func(t *testing.T) (g *G.ExprGraph, loss, x, ids *G.Node) {
		g = G.NewGraph()
		x = G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(4), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, -2, 3, -4}))))
		ids = G.NewVector(g, tensor.Int, G.WithName("ids"), G.WithShape(4), G.WithValue(tensor.New(tensor.WithBacking([]int{3, 0, 1, 2}))))
		mask := testutil.Get[*G.Node](t)(ops.Map("a > 0 || b == 2", x, ids))
		chosen := testutil.Get[*G.Node](t)(ops.Where(mask, testutil.Get[*G.Node](t)(ops.Map("a * a * b", x, ids)), x))
		whole := testutil.Get[*G.Node](t)(ops.Cast(testutil.Get[*G.Node](t)(ops.Cast(x, tensor.Int32)), tensor.Float64))
		return g, testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Map("a * b", chosen, whole)))), x, ids
	}
	want := []float64{2 * 1 * 3 * 1, 1 * -2, 2 * 3 * 1 * 3, 2 * -4 * 2 * -4} // the cast to an integer is constant
	_, loss, _, ids := build(t)
	if nodes, err := G.Grad(loss, ids); err == nil {
		t.Errorf("the gradient w.r.t. integers is %v, want an error", nodes)
	}
	g, loss, x, _ := build(t)
	dx := testutil.Get[G.Nodes](t)(G.Grad(loss, x))[0]
	onBackends(t, func(t *testing.T, on Option) {
		vm := machine(t, g, on, Keep(dx))
		testutil.Do(t, vm.RunAll())
		if got := dx.Value().Data().([]float64); !slices.Equal(got, want) {
			t.Errorf("by Grad: got %v, want %v", got, want)
		}
	})
	g, _, x, _ = build(t)
	lisp := G.NewLispMachine(g)
	defer lisp.Close()
	testutil.Do(t, lisp.RunAll())
	grad := testutil.Get[G.Value](t)(x.Grad())
	if got := grad.Data().([]float64); !slices.Equal(got, want) {
		t.Errorf("by dual values: got %v, want %v", got, want)
	}
}
