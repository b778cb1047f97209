package opspec

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// forGPU are limits as of a GPU, forTests those of cases that a test computes.
var (
	forGPU   = Limits{1 << 10, 4 << 30, 2e13}
	forTests = Limits{1 << 10, 1 << 17, 1 << 22}
)

func draw(t *testing.T, n int, seed uint64, l Limits) []Drawn {
	t.Helper()
	cases, err := Draw(n, seed, l, All())
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// Every op has cases of any size; a seed draws the same ones again, of an op alone too, and
// another seed others.
func TestDraw(t *testing.T) {
	seed := testutil.Seed(t)
	cases := draw(t, 1200, seed, forGPU)
	names := func(cases []Drawn) (names []string) {
		for _, c := range cases {
			names = append(names, c.Op+"/"+c.Name+"/"+c.Dtype)
		}
		return names
	}
	if again := draw(t, 1200, seed, forGPU); !slices.Equal(names(cases), names(again)) {
		t.Errorf("seed %d: other cases the second time", seed)
	}
	if other := draw(t, 1200, seed+1, forGPU); slices.Equal(names(cases), names(other)) {
		t.Errorf("seed %d: the next seed gives the same cases", seed)
	}
	if all := slices.Compact(slices.Sorted(slices.Values(names(cases)))); len(all) != len(cases) {
		t.Errorf("seed %d: %d of %d cases are different, want all", seed, len(all), len(cases))
	}
	spec, _ := Find("Sum")
	alone, err := Draw(5, seed, forGPU, []Spec{spec})
	if err != nil {
		t.Fatal(err)
	}
	sums := slices.DeleteFunc(slices.Clone(cases), func(c Drawn) bool { return c.Op != "Sum" })
	if got, want := names(alone), names(sums)[:5]; !slices.Equal(got, want) {
		t.Errorf("seed %d: Sum alone gets %q, among all ops %q", seed, got, want)
	}
	for _, c := range cases {
		plan, _, err := c.Case.Plan(c.Type, kernels.HostDevice())
		if err != nil {
			t.Fatal(err)
		}
		if b := plan.Bytes(); b < forGPU.Least || b > forGPU.Most || plan.Flops > forGPU.Flops {
			t.Errorf("%s %s: %d bytes and %d operations, beyond the limits", c.Op, c.Name, b, plan.Flops)
		}
	}
	testSpread(t, seed, cases)
}

// testSpread looks for kinds of cases that must be among some hundred.
func testSpread(t *testing.T, seed uint64, cases []Drawn) {
	t.Helper()
	found := map[string]int{}
	for _, c := range cases {
		found[c.Op]++
		found[c.Dtype]++
		for _, shape := range c.Shapes {
			for _, extent := range shape {
				found[[]string{"even", "odd"}[extent%2]]++
				if extent < 1 || extent > 1e8 {
					t.Errorf("%s %s: an extent of %d, want 1 to 10^8", c.Op, c.Name, extent)
				}
				if extent > 1e6 {
					found["long"]++
				}
			}
		}
		switch c.Op {
		case "MatMul":
			found[transposes{c.TransA, c.TransB}.String()]++
			found[[]string{"", "vector", "matrices", "batch"}[len(c.Shapes[1])]]++
		case "Sum":
			found[map[bool]string{true: "last axis", false: "other axes"}[slices.Contains(c.Axes, len(c.Shapes[0])-1)]]++
		case "WindowSum":
			found[map[bool]string{true: "same", false: "valid"}[c.Same]]++
		case "Histogram":
			found[c.Data]++
		}
	}
	specs := slices.DeleteFunc(All(), func(s Spec) bool { return s.Generated })
	for _, s := range specs {
		if found[s.Name] < len(cases)/len(specs) {
			t.Errorf("seed %d: %d cases of %s, want %d or more", seed, found[s.Name], s.Name, len(cases)/len(specs))
		}
	}
	for _, want := range []string{"f32", "f64", "u8", "even", "odd", "long", "MatMul[TransA]", "MatMul[TransB]", "MatMul[TransA TransB]", "vector", "matrices", "batch",
		"last axis", "other axes", "same", "valid", "uniform", "equal", "skewed"} {
		if found[want] == 0 {
			t.Errorf("seed %d: none of %d cases has %q", seed, len(cases), want)
		}
	}
}

// Limits that leave no case are an error.
func TestDrawNothing(t *testing.T) {
	for _, c := range []struct {
		n     int
		l     Limits
		specs []Spec
	}{{0, forTests, All()}, {1, forTests, nil}, {1, Limits{1 << 20, 1 << 10, 1 << 20}, All()}, {100, Limits{4, 8, 8}, All()[:1]}} {
		if cases, err := Draw(c.n, 1, c.l, c.specs); err == nil {
			t.Errorf("%d cases of %d ops within %+v: got %d, want an error", c.n, len(c.specs), c.l, len(cases))
		}
	}
}

// The JSON form is complete: a case is read from it as it was written.
func TestDrawnJSON(t *testing.T) {
	for _, c := range draw(t, 60, testutil.Seed(t), forGPU) {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var read Drawn
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if read.Op != c.Op || read.Name != c.Name || read.Dtype != c.Dtype || !reflect.DeepEqual(read.Shapes, c.Shapes) || !reflect.DeepEqual(read.Parameters, c.Parameters) {
			t.Errorf("%s: read %+v", text, read)
		}
		for i, shape := range c.Shapes {
			if shape == nil {
				t.Errorf("%s: input %d has no shape, want [] for a scalar", text, i)
			}
		}
	}
}

// Skewed data have a quarter of their values in the lowest part of the range.
func TestFillKind(t *testing.T) {
	if fillKind(kernels.Float32, "uniform") != nil {
		t.Error("uniform numbers are filled in, want those of the bench")
	}
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Uint8} {
		for _, data := range []string{"equal", "skewed"} {
			operand := kernels.Bytes(make([]float64, 300_001))
			fillKind(dt, data)(operand)
			x := Decode(dt, operand)
			low, equal, step := 0, 0, -1+0x1p-15
			if dt == kernels.Uint8 {
				step = 1 // of 256
			}
			for _, v := range x {
				if v == x[0] {
					equal++
				}
				if v < step {
					low++
				}
				if dt != kernels.Uint8 && (v < -1 || v >= 1) {
					t.Fatalf("%v, %s: got %v, want numbers in [-1, 1)", dt, data, v)
				}
			}
			share := float64(low) / float64(len(x))
			if want := map[kernels.Dtype]float64{kernels.Uint8: 0.5}[dt]; data == "skewed" && math.Abs(share-max(want, 0.25)) > 0.02 {
				t.Errorf("%v: a share of %.2f is in the lowest part, want %.2f", dt, share, max(want, 0.25))
			}
			if (equal == len(x)) != (data == "equal") {
				t.Errorf("%v, %s: %d of %d numbers are equal", dt, data, equal, len(x))
			}
		}
	}
}
