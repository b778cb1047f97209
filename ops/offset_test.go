package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// offsetRows are rows of float32 that are equal elements, in the first half of the rows, or differ by much less than their mean.
type offsetRows struct {
	rows, n int
	x       []float32
}

func drawOffsetRows(r *rand.Rand) offsetRows {
	o := offsetRows{rows: 2 * (1 + r.IntN(4)), n: 2 + r.IntN(40)}
	if r.IntN(3) == 0 {
		o.n = 2 + r.IntN(5000)
	}
	for row := range o.rows {
		mean, spread := float32(math.Exp2(14*r.Float64())*(0.5+r.Float64())), r.NormFloat64()
		if r.IntN(2) == 0 {
			mean = -mean
		}
		for range o.n {
			v := mean
			if row >= o.rows/2 {
				v += float32(spread * r.NormFloat64())
			}
			o.x = append(o.x, v)
		}
	}
	return o
}

// spacing is the distance of a float32 to the next greater one.
func spacing(v float64) float64 {
	x := float32(math.Abs(v))
	return float64(math.Nextafter32(x, math.MaxFloat32) - x)
}

// TestOffsetRows: what is computed from the differences of a row's elements from their mean or maximum is 0 of equal elements, and of others as precise as the
// elements are, on Gorgonia's machine and compiled. So are gradients.
func TestOffsetRows(t *testing.T) {
	r := testutil.Random(t)
	for range 12 {
		o := drawOffsetRows(r)
		labels := make([]int, o.rows)
		for i := range labels {
			labels[i] = r.IntN(o.n)
		}
		smoothing := r.Float64()
		vector := func(v float32) *tensor.Dense { // so that the gradient w.r.t. equal elements is 0
			w := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(o.n))
			testutil.Do(t, w.Memset(v))
			return w
		}
		scale, bias := float32(r.NormFloat64()), float32(r.NormFloat64())
		for _, c := range []struct {
			name   string
			perRow bool
			build  func(x, scale, bias, labels *G.Node) (*G.Node, error)
			want   func(s rowStats, v float64) (want, tolerance float64)
			flat   bool // the gradient of the sum w.r.t. equal elements is 0
		}{
			{"LayerNorm", false, func(x, scale, bias, _ *G.Node) (*G.Node, error) { return ops.LayerNorm(x, scale, bias, 1e-5) },
				func(s rowStats, v float64) (want, tolerance float64) {
					inverse, half := 1/math.Sqrt(s.variance+1e-5), spacing(s.mean)/2
					y := (v - s.mean) * inverse * float64(scale)
					// Of the rounded mean: by the difference, and by the variance, which is greater by its square.
					tolerance = half*inverse*math.Abs(float64(scale)) + math.Abs(y)*half*half/(s.variance+1e-5)
					if s.variance == 0 {
						tolerance = 0
					}
					return y + float64(bias), tolerance + 1e-6*math.Abs(y)
				}, true},
			{"Var", true, func(x, _, _, _ *G.Node) (*G.Node, error) { return ops.VarCorrection(x, 0, 1) },
				func(s rowStats, _ float64) (want, tolerance float64) {
					if s.variance > 0 {
						tolerance = spacing(s.mean) * spacing(s.mean) / 4
					}
					return s.variance, tolerance + 1e-6*s.variance
				}, true},
			{"CrossEntropy", true, func(x, _, _, labels *G.Node) (*G.Node, error) {
				return ops.CrossEntropy(x, labels, ops.PerRow(), ops.LabelSmoothing(smoothing))
			}, entropy(smoothing), false},
			{"CrossEntropy with weights", true, func(x, scale, _, labels *G.Node) (*G.Node, error) {
				return ops.CrossEntropy(x, labels, ops.PerRow(), ops.LabelSmoothing(smoothing), ops.ClassWeights(scale))
			}, func(s rowStats, v float64) (want, tolerance float64) {
				want, tolerance = entropy(smoothing)(s, v)
				return want * float64(scale), tolerance * math.Abs(float64(scale))
			}, false},
			{"LogSoftMax", false, func(x, _, _, _ *G.Node) (*G.Node, error) { return ops.LogSoftMax(x, 1) },
				func(s rowStats, v float64) (want, tolerance float64) {
					return v - s.lse, 1e-6 * (1 + math.Abs(v-s.lse))
				}, false},
		} {
			for _, machine := range []string{"tape", "compiled"} {
				g := G.NewGraph()
				x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithValue(tensor.New(tensor.WithShape(o.rows, o.n), tensor.WithBacking(slices.Clone(o.x)))))
				s := G.NewVector(g, tensor.Float32, G.WithName("scale"), G.WithValue(vector(scale)))
				b := G.NewVector(g, tensor.Float32, G.WithName("bias"), G.WithValue(vector(bias)))
				l := G.NewVector(g, tensor.Int, G.WithName("labels"), G.WithValue(tensor.New(tensor.WithBacking(slices.Clone(labels)))))
				out := testutil.Get[*G.Node](t)(c.build(x, s, b, l))
				grad := testutil.Get[G.Nodes](t)(G.Grad(testutil.Get[*G.Node](t)(ops.Sum(out)), x))[0]
				runOn(t, g, machine, out, grad)
				got, dx := out.Value().Data().([]float32), grad.Value().Data().([]float32)
				for row := range o.rows {
					elements := o.x[row*o.n:][:o.n]
					stats := statsOf(elements, labels[row])
					for i, v := range elements {
						at := row*o.n + i
						if c.perRow {
							at = row
						}
						where := fmt.Sprintf("%s, %s: row %d of %d elements about %v, element %d", machine, c.name, row, o.n, stats.mean, i)
						if want, tolerance := c.want(stats, float64(v)); !(math.Abs(float64(got[at])-want) <= tolerance+spacing(want)) {
							t.Fatalf("%s: got %v, want %v within %v", where, got[at], want, tolerance)
						}
						if d := dx[row*o.n+i]; c.flat && row < o.rows/2 && d != 0 {
							t.Fatalf("%s: got the gradient %v, want 0", where, d)
						}
						if c.perRow && i > 0 && !c.flat {
							break
						}
					}
				}
			}
		}
	}
}

// runOn runs a graph on Gorgonia's machine or compiled.
func runOn(t *testing.T, g *G.ExprGraph, machine string, keep ...*G.Node) {
	t.Helper()
	if machine == "tape" {
		vm := G.NewTapeMachine(g)
		defer vm.Close()
		testutil.Do(t, vm.RunAll())
		return
	}
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(keep...)))
	testutil.Do(t, vm.RunAll())
	testutil.Do(t, vm.Close())
}

// rowStats are what references of a row depend on.
type rowStats struct{ mean, variance, lse, atLabel float64 }

func statsOf(row []float32, label int) (s rowStats) {
	most, exps := float64(slices.Max(row)), 0.0
	for _, v := range row {
		s.mean += float64(v)
		exps += math.Exp(float64(v) - most)
	}
	s.mean /= float64(len(row))
	for _, v := range row {
		s.variance += (float64(v) - s.mean) * (float64(v) - s.mean) / float64(len(row))
	}
	s.lse, s.atLabel = most+math.Log(exps), float64(row[label])
	return s
}

// entropy returns the reference of CrossEntropy with smoothing.
func entropy(smoothing float64) func(s rowStats, _ float64) (want, tolerance float64) {
	return func(s rowStats, _ float64) (want, tolerance float64) {
		want = (1-smoothing)*(s.lse-s.atLabel) + smoothing*(s.lse-s.mean)
		return want, 2e-6 * (1 + math.Abs(want))
	}
}
