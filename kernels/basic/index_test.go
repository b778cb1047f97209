package basic_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// hopper is a device whose plans use every kernel; small has one SM.
var (
	hopper = kernels.Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 227 << 10, Cooperative: true}
	small  = kernels.Device{Name: "small", Major: 9, SMs: 1, SharedOptin: 227 << 10}
)

// machine runs plans for its devices: on the host, or on a GPU where there is one.
type machine struct {
	devices []kernels.Device
	run     func(p *kernels.Plan, inputs [][]byte, out []byte) error
	onto    func(p *kernels.Plan, inputs [][]byte, out []byte) error // of a plan that changes out
}

// onMachines runs a test on each machine.
func onMachines(t *testing.T, test func(t *testing.T, r *rand.Rand, m machine)) {
	onHost := func(p *kernels.Plan, inputs [][]byte, out []byte) error { return p.Run(inputs, out, nil) }
	on := func(run func(int, *kernels.Plan, [][]byte, []byte) error) func(*kernels.Plan, [][]byte, []byte) error {
		return func(p *kernels.Plan, inputs [][]byte, out []byte) error { return run(0, p, inputs, out) }
	}
	for name, m := range map[string]machine{
		"host": {[]kernels.Device{kernels.HostDevice(), hopper}, onHost, onHost},
		"GPU":  {[]kernels.Device{hopper, small}, on(bench.Run), on(bench.RunOnto)},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "GPU" {
				_, err := cudaops.Devices()
				testutil.SkipUnless(t, "GPU", err)
			}
			seed := testutil.Seed(t)
			test(t, rand.New(rand.NewPCG(seed, 1)), m)
		})
	}
}

// output runs a plan and returns its output, which was filled with NaN.
func (m machine) output(t *testing.T, p *kernels.Plan, inputs ...[]byte) []byte {
	t.Helper()
	out := exprtest.Memory(p.Out)
	for i := range out {
		out[i] = 0xff
	}
	testutil.Do(t, m.run(p, inputs, out))
	return out
}

var indexTypes = []kernels.Dtype{kernels.Int64, kernels.Int32, kernels.Uint8, kernels.Int}

// drawIndices draws n indices of an axis, some of them outside.
func drawIndices(r *rand.Rand, n, extent int64) []int64 {
	list := make([]int64, n)
	kind := r.IntN(5)
	for i := range list {
		switch {
		case kind == 1:
			list[i] = extent - 1
		case kind == 2:
			list[i] = int64(r.IntN(int(min(extent, 3))))
		case kind == 3 && r.IntN(4) == 0:
			list[i] = []int64{-1, extent, math.MinInt64, math.MaxInt64}[r.IntN(4)]
		case kind == 4 && r.IntN(8) == 0:
			list[i] = extent / 2
		default:
			list[i] = r.Int64N(extent)
		}
	}
	return list
}

// packed returns indices as elements of a type, and the numbers that these elements hold.
func packed(dt kernels.Dtype, list []int64) ([]byte, []int64) {
	back := make([]int64, len(list))
	m := exprtest.Memory(int64(len(list)) * dt.Size())
	for i, v := range list {
		switch dt {
		case kernels.Uint8:
			kernels.Elements[uint8](m)[i], back[i] = uint8(v), int64(uint8(v))
		case kernels.Int32:
			kernels.Elements[int32](m)[i], back[i] = int32(v), int64(int32(v))
		default:
			kernels.Elements[int64](m)[i], back[i] = v, v
		}
	}
	return m, back
}

// drawElements draws elements, with NaN, infinities and zeros of both signs among those of floating-point types.
func drawElements(r *rand.Rand, dt kernels.Dtype, n int64) []float64 {
	x := make([]float64, n)
	for i := range x {
		switch v := r.NormFloat64(); {
		case !dt.IsFloat():
			x[i] = math.Trunc(math.Min(50*math.Abs(v), 255))
		case r.IntN(50) == 0:
			x[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0}[r.IntN(5)]
		default:
			x[i] = float64(float32(v))
		}
	}
	return x
}

// add adds x to a sum of that type: a float32 is rounded twice, as once, since 53 bits are more than 2 * 24 + 1.
func add(dt kernels.Dtype, sum *float64, x float64) {
	if *sum += x; dt == kernels.Float32 {
		*sum = float64(float32(*sum))
	}
}

// wantSame compares elements bit by bit, all NaN equal.
func wantSame(t *testing.T, p *kernels.Plan, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d elements, want %d", p.Op, len(got), len(want))
	}
	for i := range got {
		if !exprtest.Same(got[i], want[i]) {
			t.Fatalf("%v: element %d is %v, want %v", p, i, got[i], want[i])
		}
	}
}

// A picture of one axis: outer x rows x inner.
type axis struct{ outer, rows, inner, count int64 }

func (a axis) shape() []int { return []int{int(a.outer), int(a.rows), int(a.inner)} }

// drawAxis draws the extents, an axis of size elements or less.
func drawAxis(r *rand.Rand, size int) axis {
	extent := func(most int) int64 { return int64(math.Exp(r.Float64() * math.Log(float64(most)))) }
	inner := extent(min(size, 300))
	rows := extent(size/int(inner) + 1)
	outer := extent(size/int(inner*rows) + 1)
	return axis{outer, rows, inner, extent(max(size/int(outer*inner), 1))}
}

// Gathers and scatters with indices of each type are those of the definition, to the bit.
func TestIndexTypes(t *testing.T) {
	onMachines(t, func(t *testing.T, r *rand.Rand, m machine) {
		for i := range 12 {
			a := drawAxis(r, 20_000)
			index, dev := indexTypes[i%len(indexTypes)], m.devices[i%2]
			for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Uint8} {
				list, v := packed(index, drawIndices(r, a.count, a.rows))
				x := drawElements(r, dt, a.outer*a.rows*a.inner)
				p := testutil.Get[*kernels.Plan](t)(basic.GatherBy(dev, dt, index, a.shape(), 1, a.count))
				want := make([]float64, a.outer*a.count*a.inner)
				for e := range want {
					o, k, c := a.part(int64(e))
					if v[k] >= 0 && v[k] < a.rows {
						want[e] = x[(o*a.rows+v[k])*a.inner+c]
					}
				}
				wantSame(t, p, exprtest.Unpack(dt, m.output(t, p, exprtest.Pack(dt, x), list)), want)
				if !dt.IsFloat() || basic.ScatterParts(a.outer, a.rows, a.inner, a.count) > 1 { // another order: TestIndices of bench
					continue
				}
				checkScatter(t, r, m, dev, dt, index, a, list, v)
			}
		}
	})
}

// part returns where element e of outer x count x inner is.
func (a axis) part(e int64) (o, k, c int64) {
	return e / (a.count * a.inner), e / a.inner % a.count, e % a.inner
}

func checkScatter(t *testing.T, r *rand.Rand, m machine, dev kernels.Device, dt, index kernels.Dtype, a axis, list []byte, v []int64) {
	t.Helper()
	g := drawElements(r, dt, a.outer*a.count*a.inner)
	p := testutil.Get[*kernels.Plan](t)(basic.ScatterBy(dev, dt, index, a.shape(), 1, a.count))
	want := make([]float64, a.outer*a.rows*a.inner)
	for e, x := range g {
		if o, k, c := a.part(int64(e)); v[k] >= 0 && v[k] < a.rows {
			add(dt, &want[(o*a.rows+v[k])*a.inner+c], x)
		}
	}
	wantSame(t, p, exprtest.Unpack(dt, m.output(t, p, exprtest.Pack(dt, g), list)), want)
}

// The scatter to long rows sums in the order of the indices, to the bit: in one round and several, with rows of any number of indices.
func TestScatterRows(t *testing.T) {
	onMachines(t, func(t *testing.T, r *rand.Rand, m machine) {
		for _, a := range []axis{
			{1, 2000, 132, 600}, {1, 2100, 128, 700}, {1, 600, 700, 8192}, {1, 70, 3300, 1000}, {1, 64, 9000, 513}, {1, 900, 300, 16_000}, {1, 3000, 64, 4000},
		} {
			if testing.Short() {
				a.count = max(a.count/8, 512)
			}
			for range 2 {
				list, v := packed(kernels.Int64, drawIndices(r, a.count, a.rows))
				dt := []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]
				dev := m.devices[r.IntN(2)]
				if p, err := basic.Scatter(dev, dt, a.shape(), 1, a.count); dev.Kind == kernels.GPU && (err != nil || len(p.Launches) != 1) {
					t.Fatalf("%v, %v, want one launch", p, err)
				}
				checkScatter(t, r, m, dev, dt, kernels.Int64, a, list, v)
				checkScatterOnto(t, r, m, dev, dt, a)
			}
		}
	})
}

// checkScatterOnto adds the sums of rows to a tensor. There is no plan for the host, and none for more indices than a round has.
func checkScatterOnto(t *testing.T, r *rand.Rand, m machine, dev kernels.Device, dt kernels.Dtype, a axis) {
	t.Helper()
	index := indexTypes[r.IntN(len(indexTypes))]
	list, v := packed(index, drawIndices(r, a.count, a.rows))
	p, ok, err := basic.ScatterOnto(dev, dt, index, a.shape()[1:], a.count)
	if err != nil || ok != (dev.Kind == kernels.GPU && a.count <= 8192) {
		t.Fatalf("%d indices onto a tensor, %v: got %v, %v, want a plan for GPUs and up to 8192", a.count, dev, ok, err)
	}
	if !ok {
		return
	}
	g, base, want := drawElements(r, dt, a.count*a.inner), drawElements(r, dt, a.rows*a.inner), make([]float64, a.rows*a.inner)
	out := exprtest.Pack(dt, base)
	testutil.Do(t, m.onto(p, [][]byte{slices.Clone(out), exprtest.Pack(dt, g), list}, out))
	summed := make([]bool, a.rows)
	for e, x := range g {
		if _, k, c := a.part(int64(e)); v[k] >= 0 && v[k] < a.rows {
			add(dt, &want[v[k]*a.inner+c], x)
			summed[v[k]] = true
		}
	}
	for e, x := range base {
		if summed[int64(e)/a.inner] {
			add(dt, &want[e], x)
		} else { // the row stays, to the sign of a zero
			want[e] = x
		}
	}
	wantSame(t, p, exprtest.Unpack(dt, out), want)
}

// Pick and its adjoint are those of the definition, to the bit, for indices of each type.
func TestPick(t *testing.T) {
	onMachines(t, func(t *testing.T, r *rand.Rand, m machine) {
		for i := range 24 {
			a := drawAxis(r, 30_000)
			switch i {
			case 0:
				a = axis{3, 9000, 1, 1}
			case 1:
				a = axis{2, 5, 1, 3000}
			case 2:
				a = axis{2, 300, 45, 60}
			}
			index, dev, dt := indexTypes[i%len(indexTypes)], m.devices[i/4%2], []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Uint8, kernels.Int64, expr.F16}[r.IntN(5)]
			list, v := packed(index, drawIndices(r, a.outer*a.count*a.inner, a.rows))
			if dt == expr.F16 {
				checkHalves(t, r, m, dev, index, a, list, v)
				dt = kernels.Float32
			}
			x := drawElements(r, dt, a.outer*a.rows*a.inner)
			p := testutil.Get[*kernels.Plan](t)(basic.Pick(dev, dt, index, a.shape(), 1, a.count))
			want := make([]float64, a.outer*a.count*a.inner)
			for e := range want {
				if o, _, c := a.part(int64(e)); v[e] >= 0 && v[e] < a.rows {
					want[e] = x[(o*a.rows+v[e])*a.inner+c]
				}
			}
			wantSame(t, p, exprtest.Unpack(dt, m.output(t, p, exprtest.Pack(dt, x), list)), want)
			if !dt.IsFloat() {
				continue
			}
			g := drawElements(r, dt, a.outer*a.count*a.inner)
			p = testutil.Get[*kernels.Plan](t)(basic.PickAdjoint(dev, dt, index, a.shape(), 1, a.count))
			want = make([]float64, a.outer*a.rows*a.inner)
			for e, y := range g {
				if o, _, c := a.part(int64(e)); v[e] >= 0 && v[e] < a.rows {
					add(dt, &want[(o*a.rows+v[e])*a.inner+c], y)
				}
			}
			wantSame(t, p, exprtest.Unpack(dt, m.output(t, p, exprtest.Pack(dt, g), list)), want)
		}
	})
}

// checkHalves picks elements of 16 bits.
func checkHalves(t *testing.T, r *rand.Rand, m machine, dev kernels.Device, index kernels.Dtype, a axis, list []byte, v []int64) {
	t.Helper()
	x := make([]uint16, a.outer*a.rows*a.inner)
	for i := range x {
		x[i] = uint16(r.Uint32())
	}
	p := testutil.Get[*kernels.Plan](t)(basic.Pick(dev, expr.F16, index, a.shape(), 1, a.count))
	for e, got := range kernels.Elements[uint16](m.output(t, p, kernels.Bytes(x), list)) {
		want := uint16(0)
		if o, _, c := a.part(int64(e)); v[e] >= 0 && v[e] < a.rows {
			want = x[(o*a.rows+v[e])*a.inner+c]
		}
		if got != want {
			t.Fatalf("%v: element %d is %d, want %d", p, e, got, want)
		}
	}
}

// Cumulative sums of a million equal elements, whose rounding errors would all have one sign, keep their digits on the host.
func TestCumSumOfEqualElements(t *testing.T) {
	const n, x = 1 << 20, float32(0.1)
	p := testutil.Get[*kernels.Plan](t)(basic.CumSum(kernels.HostDevice(), kernels.Float32, []int{n}, 0, false))
	in, out := make([]float32, n), make([]byte, p.Out)
	for i := range in {
		in[i] = x
	}
	testutil.Do(t, p.Run([][]byte{kernels.Bytes(in)}, out, nil))
	for i, got := range kernels.Elements[float32](out) {
		if want := float64(x) * float64(i+1); math.Abs(float64(got)-want) > 1e-7*want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

// Cumulative sums are near those in float64, those of integers exact, and their bits do not depend on the device.
func TestCumSum(t *testing.T) {
	onMachines(t, func(t *testing.T, r *rand.Rand, m machine) {
		for i := range 32 {
			a := drawAxis(r, 60_000)
			switch i {
			case 0, 1, 2, 3:
				a = axis{2, 30_000 + int64(i), 1, 0}
			case 4, 5:
				a = axis{3, 1500, 1, 0}
			case 6:
				a = axis{1, 5000, 7, 0}
			case 7:
				a = axis{1, 300_001, 1, 0} // tiles of several groups
			case 8:
				a = axis{1, 1_300_000, 1, 0}
			case 9:
				a = axis{2, 400_000, 1, 0}
			}
			dt := []kernels.Dtype{kernels.Float32, kernels.Int64, kernels.Int32, kernels.Float64}[i%4]
			reversed := r.IntN(2) == 0
			x := make([]float64, a.outer*a.rows*a.inner)
			for e := range x {
				if x[e] = float64(float32(r.NormFloat64())); !dt.IsFloat() {
					x[e] = math.Trunc(x[e] * 1e6)
				}
			}
			if dt.IsFloat() && i%3 == 0 {
				x[r.IntN(len(x))] = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
			}
			result := dt
			if !dt.IsFloat() {
				result = kernels.Int64
			}
			var first []byte
			for _, dev := range m.devices {
				p := testutil.Get[*kernels.Plan](t)(basic.CumSum(dev, dt, a.shape(), 1, reversed))
				out := m.output(t, p, exprtest.Pack(dt, x))
				got := exprtest.Unpack(result, out)
				for c := range a.outer * a.inner {
					sum, size := 0., 0.
					for k := range a.rows {
						if reversed {
							k = a.rows - 1 - k
						}
						e := (c/a.inner*a.rows+k)*a.inner + c%a.inner
						sum += x[e]
						size += math.Abs(x[e])
						tolerance := 0.
						if dt == kernels.Float32 {
							tolerance = 1e-6 * size
						} else if dt == kernels.Float64 {
							tolerance = 1e-14 * size
						}
						if !exprtest.Same(got[e], sum) && !(math.Abs(got[e]-sum) <= tolerance) {
							t.Fatalf("%v: element %d is %v, want %v within %v", p, e, got[e], sum, tolerance)
						}
					}
				}
				if first == nil {
					first = out
				} else if !slices.Equal(first, out) {
					t.Fatalf("%v: another device has other bits", p)
				}
			}
		}
	})
}

// indexPlans are plans of all kernels of indices, cumulative sums, selections and draws.
func indexPlans(t *testing.T) (plans []*kernels.Plan) {
	plan := func(p *kernels.Plan, err error) {
		t.Helper()
		testutil.Do(t, err)
		plans = append(plans, p)
	}
	for _, dev := range []kernels.Device{hopper, small, kernels.HostDevice()} {
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
			plan(basic.GatherBy(dev, dt, kernels.Int32, []int{5, 7}, 0, 3))
			plan(basic.GatherBy(dev, dt, kernels.Uint8, []int{5, 8}, 0, 3))
			plan(basic.GatherBy(dev, dt, kernels.Uint8, []int{5, 4}, 0, 3))
			plan(basic.ScatterBy(dev, dt, kernels.Int32, []int{5, 7}, 0, 3))
			plan(basic.Scatter(dev, dt, []int{1500, 128}, 0, 9))
			plan(basic.PickAdjoint(dev, dt, kernels.Int32, []int{5, 7}, 0, 3))
			for _, rows := range []int64{1, 200} {
				plan(basic.TopK(dev, dt, rows, 5000, 5))
				plan(basic.Categorical(dev, dt, basic.Draws{Rows: rows, N: 5000, Temperature: 1, K: rows, P: 1, Stream: 1}))
			}
		}
		for _, dt := range []kernels.Dtype{kernels.Uint8, expr.BF16, kernels.Float32, kernels.Int64} {
			plan(basic.Pick(dev, dt, kernels.Int32, []int{5, 7}, 0, 3))
		}
		plan(basic.GatherBy(dev, kernels.Bool, kernels.Int32, []int{5, 7}, 0, 3))
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Int32, kernels.Int64, kernels.Int} {
			plan(basic.CumSum(dev, dt, []int{3, 9000}, 1, true))
			plan(basic.CumSum(dev, dt, []int{3, 90, 2}, 1, false))
		}
	}
	return plans
}

// The launches are such as the entry points take, and the devices can run them.
func TestIndexLaunches(t *testing.T) {
	plans := indexPlans(t)
	var c kernels.Checker
	for _, p := range plans {
		testutil.Do(t, c.Check(p))
		testutil.Do(t, p.Check(hopper))
	}
}

// Arguments that do not fit are refused with an error that names them.
func TestIndexErrors(t *testing.T) {
	dev := kernels.HostDevice()
	for want, plan := range map[string]func() (*kernels.Plan, error){
		"got indices of f32": func() (*kernels.Plan, error) {
			return basic.GatherBy(dev, kernels.Float32, kernels.Float32, []int{2}, 0, 4)
		},
		"got indices of bool": func() (*kernels.Plan, error) {
			return basic.ScatterBy(dev, kernels.Float32, kernels.Bool, []int{2}, 0, 4)
		},
		"got axis 1 of shape": func() (*kernels.Plan, error) { return basic.Pick(dev, kernels.Float32, kernels.Int64, []int{2}, 1, 4) },
		"got indices of bf16": func() (*kernels.Plan, error) { return basic.Pick(dev, kernels.Float32, expr.BF16, []int{2}, 0, 4) },
		"got -1 indices": func() (*kernels.Plan, error) {
			return basic.PickAdjoint(dev, kernels.Float32, kernels.Int64, []int{2}, 0, -1)
		},
		"want float32 or float64": func() (*kernels.Plan, error) {
			return basic.PickAdjoint(dev, kernels.Int64, kernels.Int64, []int{2}, 0, 1)
		},
		"got k = 3, want 1 to 2":  func() (*kernels.Plan, error) { return basic.TopK(dev, kernels.Float32, 4, 2, 3) },
		"got k = 0, want 1 to 10": func() (*kernels.Plan, error) { return basic.TopK(dev, kernels.Float32, 4, 5000, 0) },
		"got the zero Device":     func() (*kernels.Plan, error) { return basic.TopK(kernels.Device{}, kernels.Float32, 4, 5000, 1) },
		"got 2 temperatures": func() (*kernels.Plan, error) {
			return basic.Categorical(dev, kernels.Float32, basic.Draws{Rows: 3, N: 4, Temperature: 2, K: 1, P: 1})
		},
		"got stream -1": func() (*kernels.Plan, error) {
			return basic.Categorical(dev, kernels.Float32, basic.Draws{Rows: 3, N: 4, Temperature: 1, K: 1, P: 1, Stream: -1})
		},
		"want float32, float64, i": func() (*kernels.Plan, error) { return basic.CumSum(dev, kernels.Uint8, []int{3}, 0, false) },
	} {
		if p, err := plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, want)
		}
	}
}
