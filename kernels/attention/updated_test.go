package attention_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
)

// Attention with an update of its cache has the bits of attention to the updated cache, and leaves that cache: rows at any position, and none where they do not fit.
func TestUpdated(t *testing.T) {
	seeds := testutil.Random(t)
	draws := 24
	if tested(t)[0].Memory == 0 {
		draws = 12
	}
	if testing.Short() {
		draws = 6
	}
	seen := map[bool]int{} // whether rows fit
	for n := 0; n < draws || (seen[true] == 0 || seen[false] == 0) && n < 20*draws; n++ {
		seed := seeds.Uint64()
		for _, dev := range tested(t) {
			updated(t, rand.New(rand.NewPCG(seed, 0)), dev, seen)
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("%d draws have rows that fit, %d rows that do not, want both", seen[true], seen[false])
	}
	for _, change := range []func(*attention.Forward){func(f *attention.Forward) { f.In[1].Row++ }, func(f *attention.Forward) { f.Statistics = true }, func(f *attention.Forward) { f.Queries = 300 }} {
		f := attention.Forward{Problem: cached(attention.Problem{Dtype: kernels.Float32, Batch: 2, Heads: 2, KeyHeads: 2, Queries: 1, Keys: 100, Dim: 64}), Out: true}
		dev := tested(t)[0]
		u, ok := f.Updating(0, 128, 1, 1, dev)
		if change(&f); !ok {
			t.Errorf("%v on %s: want an update", u, dev.Name)
		}
		if u, ok := f.Updating(0, 128, 1, 1, dev); ok {
			t.Errorf("%+v on %s: updates its cache, want none", u, dev.Name)
		}
	}
}

// cached returns a problem whose keys and values are the halves of rows of a cache.
func cached(p attention.Problem) attention.Problem {
	row := 2 * p.KeyHeads * p.Dim
	p.In[1] = attention.Strides{Batch: p.Keys * row, Head: p.Dim, Row: row}
	p.In[2] = p.In[1]
	return p
}

// updated checks a drawn problem on a device, if the device has a kernel for it.
func updated(t *testing.T, r *rand.Rand, dev kernels.Device, seen map[bool]int) {
	t.Helper()
	a := drawProblem(r, []kind{f32, bf16, f16}[r.IntN(3)], true, 3)
	a.Dim = 8 * (1 + r.Int64N(32))
	a.draw(r)
	dt, count := a.Dtype, 1+r.Int64N(min(3, a.Keys))
	size, row := dt.Size(), 2*a.KeyHeads*a.Dim
	f, half := attention.Forward{Problem: cached(a.Problem), Out: true}, row/2
	keys, values := int64(0), half
	if r.IntN(2) == 0 {
		keys, values = values, keys
	}
	numbers := func(n int64) []byte {
		x := make([]float64, n)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		return bytesOfType(dt, x)
	}
	cache, rows, position := numbers(a.Batch*a.Keys*row), numbers(a.Batch*count*row), make([]int64, []int64{1, a.Batch}[r.IntN(2)])
	for i := range position {
		if position[i] = r.Int64N(a.Keys-count+3) - 1; r.IntN(4) == 0 {
			position[i] = a.Keys - count
		}
	}
	u, ok := f.Updating(keys, values, count, int64(len(position)), dev)
	if !ok {
		return
	}
	next := slices.Clone(cache)
	for b := range a.Batch {
		at := position[int(b)%len(position)]
		fits := at >= 0 && at+count <= a.Keys
		if seen[fits]++; fits {
			copy(next[(b*a.Keys+at)*row*size:], rows[b*count*row*size:(b+1)*count*row*size])
		}
	}
	run := func(planner kernels.Planner, inputs [][]byte, out []byte) []byte {
		p := testutil.Get[*kernels.Plan](t)(planner.Plan(dev))
		testutil.Do(t, p.Check(dev))
		for i := range inputs {
			inputs[i] = inputs[i][:p.Inputs[i]]
		}
		all := bytes.Repeat([]byte{0xff}, int(p.Out))
		copy(all, out)
		if dev.Memory == 0 {
			testutil.Do(t, p.Run(inputs, all, bytes.Repeat([]byte{0xff}, int(p.Scratch))))
		} else {
			testutil.Do(t, bench.RunOnto(0, p, inputs, all))
		}
		if len(p.Parts) == 0 {
			return all
		}
		if !bytes.Equal(all[:len(next)], next) {
			t.Fatalf("%v on %s at %v: the cache has other rows", p, dev.Name, position)
		}
		return all[p.Parts[1]:]
	}
	q := [][]byte{bytesOfType(dt, a.q)}
	var counts [][]byte
	if a.counts != nil {
		counts = [][]byte{bytesOfType(a.Counts.Dtype, a.counts)}
	}
	got := run(u, slices.Concat([][]byte{cache}, q, counts, [][]byte{rows, kernels.Bytes(position)}), cache)
	want := run(f, slices.Concat(q, [][]byte{next[keys*size:], next[values*size:]}, counts), nil)
	if !bytes.Equal(got[:len(want)], want) {
		t.Fatalf("%v on %s: other bits than attention to the updated cache", u, dev.Name)
	}
}
