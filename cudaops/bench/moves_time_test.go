package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// moved is a plan that is timed, with the bytes that must move.
type moved struct {
	name  string
	plan  func(dev kernels.Device) (*kernels.Plan, error)
	bytes int64             // 0 for those of inputs and output
	index func(r int) int64 // of input 1, if that holds indices
}

// The times of ops that move elements, and the bandwidth that they reach, a line each, of
// those that the regular expression STHENO_TIMES matches, such as "concat".
func TestMovesTimes(t *testing.T) {
	w := newStopwatch(t)
	for _, m := range append(append(turns(), parts()...), indexings()...) {
		if !w.wants(m.name) {
			continue
		}
		p := testutil.Get[*kernels.Plan](t)(m.plan(w.dev))
		var inputs [][]byte
		for i, bytes := range p.Inputs {
			if i == 1 && m.index != nil {
				indices := make([]int64, bytes/8)
				for k := range indices {
					indices[k] = m.index(k)
				}
				inputs = append(inputs, kernels.Bytes(indices))
				continue
			}
			inputs = append(inputs, uniform(bytes, i))
		}
		bytes := m.bytes
		if bytes == 0 {
			bytes = p.Bytes()
		}
		w.plan(m.name, p, inputs, bytes, 60*time.Millisecond)
	}
}

// turns are transposes and slices, copied or beside other operands.
func turns() (list []moved) {
	add := func(name, text string, bytes int64, dt kernels.Dtype, shape []int, views ...codegen.View) {
		list = append(list, moved{name: fmt.Sprintf("%s %v %v", name, dt, shape), bytes: bytes, plan: func(dev kernels.Device) (*kernels.Plan, error) {
			f, err := expr.Parse(text, dt, []string{"a", "b"}[:len(views)]...)
			if err != nil {
				return nil, err
			}
			return codegen.Map(dev, f, shape, views...)
		}})
	}
	strided := func(shape []int, offset int64, strides ...int) codegen.View {
		v := codegen.View{Offset: offset, Strides: strides, Elements: offset + 1}
		for a, s := range strides {
			v.Elements += int64(s * (shape[a] - 1))
		}
		return v
	}
	flat := []int{1 << 28}
	add("copy", "a", 0, kernels.Float32, flat, codegen.Dense(flat))
	for _, shape := range [][]int{{64, 1024, 4096}, {64, 4096, 1024}, {256, 1021, 1027}, {1, 16384, 16384}, {4096, 256, 256}, {1 << 16, 64, 64},
		{8192, 32, 1024}, {8192, 1024, 32}, {1 << 16, 49, 84}} {
		add("transpose", "a", 0, kernels.Float32, shape, strided(shape, 0, shape[1]*shape[2], 1, shape[1]))
	}
	half := []int{64, 1024, 2048}
	add("transpose", "a", 0, kernels.Float64, half, strided(half, 0, half[1]*half[2], 1, half[1]))
	add("transpose", "tanh(a) + b", 0, kernels.Float32, half, strided(half, 0, half[1]*half[2], 1, half[1]), codegen.Dense(half))
	rows := []int{1 << 18, 1024}
	add("slice of 1056 columns from 16 on", "a", 2<<30, kernels.Float32, rows, strided(rows, 16, 1056, 1))
	add("slice of 1027 columns from 1 on", "a", 2<<30, kernels.Float32, rows, strided(rows, 1, 1027, 1))
	add("slice from 1 on", "a", 0, kernels.Float32, flat, strided(flat, 1, 1))
	for _, c := range [][2]int{{1056, 16}, {1027, 1}} {
		wide := []int{1 << 18, c[0]}
		v := strided([]int{1 << 18, 1024}, 0, 1024, 1)
		v.Bounds = codegen.Bounds{Axis: 1, From: c[1], To: c[1] + 1024}
		add(fmt.Sprintf("slice's derivative from %d on", c[1]), "a", 0, kernels.Float32, wide, v)
	}
	return list
}

// parts are concatenations.
func parts() (list []moved) {
	for _, c := range []struct {
		shape   []int
		axis    int
		extents []int
	}{
		{[]int{1 << 28}, 0, []int{1 << 27, 1 << 27}}, {[]int{1 << 28}, 0, []int{1<<27 + 1, 1<<27 - 1}},
		{[]int{1 << 18, 1024}, 1, []int{512, 512}}, {[]int{1 << 18, 1024}, 1, []int{1000, 24}}, {[]int{1 << 18, 1024}, 1, []int{999, 25}},
		{[]int{1 << 18, 1024}, 1, []int{128, 128, 128, 128, 128, 128, 128, 128}}, {[]int{64, 512, 64, 128}, 1, []int{256, 256}},
	} {
		list = append(list, moved{name: fmt.Sprintf("concat %v of %v along %d", c.extents, c.shape, c.axis), plan: func(dev kernels.Device) (*kernels.Plan, error) {
			var views []codegen.View
			for _, n := range c.extents {
				part := append([]int(nil), c.shape...)
				part[c.axis] = n
				views = append(views, codegen.Dense(part))
			}
			return codegen.Concat(dev, kernels.Float32, c.shape, c.axis, c.extents, views...)
		}})
	}
	return list
}

// indexings are embeddings and their derivatives. Of a derivative the gradient is read and the whole
// table written; of a table that is gathered from, the rows that the indices name are read.
func indexings() (list []moved) {
	for _, c := range []struct {
		words, size int
		count       int64
		equal       bool
	}{
		{50_000, 1024, 4096, false}, {50_000, 1024, 4096, true}, {50_000, 1024, 1 << 18, false}, {50_000, 1024, 1 << 18, true},
		{50_000, 768, 1 << 15, false}, {1 << 20, 64, 1 << 16, false}, {1 << 20, 63, 1 << 16, false}, {1000, 1024, 1 << 18, false},
		{1, 1, 1 << 26, false}, {2, 3, 1 << 25, false}, {10, 16, 1 << 23, false}, {96, 256, 1 << 20, false}, {4, 1024, 1 << 18, false},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		index := func(int) int64 { return int64(r.IntN(c.words)) }
		name := fmt.Sprintf("%d of %d x %d", c.count, c.words, c.size)
		if c.equal {
			index, name = func(int) int64 { return 7 }, name+", all equal"
		}
		shape, row := []int{c.words, c.size}, int64(4*c.size)
		list = append(list, moved{"gather " + name, func(dev kernels.Device) (*kernels.Plan, error) {
			return basic.Gather(dev, kernels.Float32, shape, 0, c.count)
		}, 2 * c.count * row, index}, moved{"scatter " + name, func(dev kernels.Device) (*kernels.Plan, error) {
			return basic.Scatter(dev, kernels.Float32, shape, 0, c.count)
		}, (c.count + int64(c.words)) * row, index})
	}
	return list
}
