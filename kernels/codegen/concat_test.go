package codegen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// devices are those that plans are drawn for: the host, and one whose kernels have tiles.
var devices = []kernels.Device{kernels.HostDevice(), {Major: 9, SMs: 132}}

// joined is a concatenation of random views.
type joined struct {
	dtype   kernels.Dtype
	shape   []int
	axis    int
	extents []int
	views   []View
	memory  [][]float64
	want    []float64
}

// drawJoined draws parts of any rank, some empty, that lie in any order of axes and in part of
// their buffers.
func drawJoined(t *rapid.T) *joined {
	j := &joined{dtype: rapid.SampledFrom([]kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Int32, kernels.Int, kernels.Bool}).Draw(t, "type")}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	for range rapid.IntRange(1, 5).Draw(t, "rank") {
		j.shape = append(j.shape, rapid.SampledFrom([]int{1, 2, 3, 4, 8, 20, 36}).Draw(t, "extent"))
	}
	for kernels.Count(j.shape) > 4000 {
		j.shape[slices.Index(j.shape, slices.Max(j.shape))] = 1
	}
	j.axis = rapid.IntRange(0, len(j.shape)-1).Draw(t, "axis")
	j.shape[j.axis] = 0
	for range rapid.SampledFrom([]int{1, 2, 3, 5, 20}).Draw(t, "operands") {
		n := rapid.SampledFrom([]int{0, 1, 2, 4, 7, 8, 32}).Draw(t, "elements")
		if k := len(j.extents); k > 0 && rapid.Bool().Draw(t, "as before") {
			n = j.extents[k-1]
		}
		j.extents, j.shape[j.axis] = append(j.extents, n), j.shape[j.axis]+n
	}
	for _, n := range j.extents {
		part := slices.Clone(j.shape)
		part[j.axis] = n
		v := View{Strides: make([]int, len(part)), Offset: int64(r.IntN(5))}
		at, pad, axes := 1, r.IntN(2), r.Perm(len(part))
		if r.IntN(2) == 0 {
			v.Offset, pad = 4*int64(r.IntN(2)), 0
			for a := range axes {
				axes[a] = len(axes) - 1 - a
			}
		}
		for _, a := range axes {
			v.Strides[a] = at
			at *= part[a] + pad*r.IntN(3)
		}
		v.Elements = v.Offset + int64(max(at, 1))
		x := make([]float64, v.Elements)
		for i := range x {
			x[i] = float64(r.IntN(200) - 100)
			if j.dtype == kernels.Bool {
				x[i] = float64(r.IntN(2))
			}
		}
		j.views, j.memory = append(j.views, v), append(j.memory, x)
	}
	j.reference()
	return j
}

// reference looks the elements up one by one.
func (j *joined) reference() {
	j.want = make([]float64, kernels.Count(j.shape))
	index := make([]int, len(j.shape))
	for k := range j.want {
		rest := k
		for a := len(index) - 1; a >= 0; a-- {
			index[a], rest = rest%j.shape[a], rest/j.shape[a]
		}
		part, within := 0, index[j.axis]
		for ; within >= j.extents[part]; part++ {
			within -= j.extents[part]
		}
		at := int(j.views[part].Offset)
		for a, s := range j.views[part].Strides {
			if a == j.axis {
				at += within * s
			} else {
				at += index[a] * s
			}
		}
		j.want[k] = j.memory[part][at]
	}
}

func (j *joined) inputs() (list [][]byte) {
	for _, x := range j.memory {
		list = append(list, exprtest.Pack(j.dtype, x))
	}
	return list
}

// Concat writes the parts of any layout consecutively, and nothing else.
func TestConcat(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		j := drawJoined(t)
		dev := rapid.SampledFrom(devices).Draw(t, "device")
		p, err := Concat(dev, j.dtype, j.shape, j.axis, j.extents, j.views...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runGuarded(p, j.inputs())
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range exprtest.Unpack(j.dtype, out) {
			if !exprtest.Same(got, j.want[i]) {
				t.Fatalf("element %d is %v, want %v; %v", i, got, j.want[i], p)
			}
		}
	})
}

// Parts are written in vectors where they can be, else by elements.
func TestConcatLayout(t *testing.T) {
	for _, c := range []struct {
		shape   []int
		axis    int
		extents []int
		want    string // how parts are written and read, and the elements of a vector
	}{
		{[]int{8, 64}, 0, []int{3, 5}, "dd4 dd4"}, {[]int{8, 212}, 1, []int{100, 112}, "rd4 rd4"}, {[]int{8, 213}, 1, []int{100, 113}, "dpp4"},
		{[]int{8, 16}, 1, []int{4, 12}, "dpp4"}, {[]int{150}, 0, []int{80, 70}, "dpp4"}, {[]int{15}, 0, []int{15, 0}, "dd4"},
		{[]int{2, 520}, 1, []int{128, 128, 128, 136}, "rd4x3 rd4"}, {[]int{2, 520}, 1, []int{128, 0, 128, 264}, "rd4x2 rd4"},
		{[]int{2, 20}, 1, slices.Repeat([]int{1}, 20), "rpppppppp4 rpppppppp4 rpppp4"}, {[]int{2, 21}, 1, slices.Repeat([]int{1}, 21), "rpppppppp1 rpppppppp1 rppppp1"},
		{[]int{2, 10}, 1, []int{1, 2, 3, 2, 2}, "dppppp4"},
	} {
		var views []View
		for _, n := range c.extents {
			part := slices.Clone(c.shape)
			part[c.axis] = n
			views = append(views, Dense(part))
		}
		p, err := Concat(kernels.HostDevice(), kernels.Float32, c.shape, c.axis, c.extents, views...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range p.Launches {
			layout := l.Kernel.Image.(image).layout
			operands := len(layout.places)/4 - 1
			got = append(got, fmt.Sprintf("%s%s%d", placeLetters(layout, operands, 1), placeLetters(layout, 0, operands), layout.width))
			if n := l.Grid[1]; n > 1 {
				got[len(got)-1] += fmt.Sprint("x", n)
				if layout.joined < n || layout.joined >= 2*n {
					t.Errorf("%v along %d of %v: got a kernel of %d parts for %d", c.extents, c.axis, c.shape, layout.joined, n)
				}
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v along %d of %v: got %q, want %q", c.extents, c.axis, c.shape, got, c.want)
		}
	}
}

func TestConcatErrors(t *testing.T) {
	v := Dense([]int{2, 3})
	for want, plan := range map[string]func() (*kernels.Plan, error){
		"got axis 2 of shape": func() (*kernels.Plan, error) {
			return Concat(kernels.HostDevice(), kernels.Float32, []int{4, 3}, 2, []int{2, 2}, v, v)
		},
		"2 extents for 1": func() (*kernels.Plan, error) {
			return Concat(kernels.HostDevice(), kernels.Float32, []int{4, 3}, 0, []int{2, 2}, v)
		},
		"want 5 together": func() (*kernels.Plan, error) {
			return Concat(kernels.HostDevice(), kernels.Float32, []int{5, 3}, 0, []int{2, 2}, v, v)
		},
		"operand 1: operand 0": func() (*kernels.Plan, error) {
			return Concat(kernels.HostDevice(), kernels.Float32, []int{5, 3}, 0, []int{2, 3}, v, v)
		},
	} {
		if p, err := plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, want)
		}
	}
}
