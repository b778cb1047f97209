package exec

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// Of any two instructions of which one writes memory that the other uses, the later waits for
// the earlier, perhaps by way of others; and none waits for one that it shares no memory
// with.
func TestOrder(t *testing.T) {
	defer func(n int) { maxBlock = n }(maxBlock)
	maxBlock = 2
	homes := [2]program.Memory{&hostMemory{}, &hostMemory{}}
	testutil.CheckProperty(t, func(t *rapid.T) {
		buffer := func(what string) *program.Buffer {
			return &program.Buffer{
				Offset: rapid.Int64Range(0, 40).Draw(t, what), Size: rapid.Int64Range(0, 20).Draw(t, "size"),
				Home: rapid.SampledFrom([]program.Memory{nil, homes[0], homes[1]}).Draw(t, "home"),
			}
		}
		value := func(b *program.Buffer) *program.Value {
			v := &program.Value{Type: program.Type{Numeric: true, Shape: tensor.Shape{1}}, Buffer: b}
			v.Base = v
			return v
		}
		type use struct{ reads, writes []*program.Buffer }
		var uses []use
		var o order
		waits := map[[2]int]bool{} // the transitive closure
		for i := range rapid.IntRange(1, 15).Draw(t, "instructions") {
			in, u := &program.Instr{}, use{}
			for range rapid.IntRange(0, 3).Draw(t, "inputs") {
				b := buffer("input")
				u.reads, in.In = append(u.reads, b), append(in.In, value(b))
			}
			for range rapid.IntRange(1, 2).Draw(t, "outputs") {
				b := buffer("output")
				u.writes, in.Out = append(u.writes, b), append(in.Out, value(b))
			}
			if rapid.Bool().Draw(t, "scratch") {
				in.Scratch = buffer("scratch")
				u.writes = append(u.writes, in.Scratch)
			}
			uses = append(uses, u)
			for _, j := range o.add(i, in) {
				if !share(uses[j].writes, slices.Concat(u.reads, u.writes)) && !share(uses[j].reads, u.writes) {
					t.Fatalf("%d waits for %d, with which it shares nothing", i, j)
				}
				waits[[2]int{i, j}] = true
				for k := range j {
					waits[[2]int{i, k}] = waits[[2]int{i, k}] || waits[[2]int{j, k}]
				}
			}
			for j := range i {
				if (share(uses[j].writes, slices.Concat(u.reads, u.writes)) || share(uses[j].reads, u.writes)) && !waits[[2]int{i, j}] {
					t.Fatalf("%d does not wait for %d", i, j)
				}
			}
		}
	})
}

func share(a, b []*program.Buffer) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Home == y.Home && max(x.Offset, y.Offset) < min(x.Offset+x.Size, y.Offset+y.Size) {
				return true
			}
		}
	}
	return false
}

// The edges that reduced keeps imply the same dependencies, and within the range that it considers none of them is redundant.
func TestReduced(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 5, 20, 70, 1500}).Draw(t, "pieces")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		work := make([]Work, n)
		for k := range work {
			for range r.IntN(5) {
				if k > 0 {
					work[k].After = append(work[k].After, max(0, k-1-r.IntN(1+r.IntN(k))))
				}
			}
			slices.Sort(work[k].After)
			work[k].After = slices.Compact(work[k].After)
		}
		want := closure(work)
		reduced(work)
		got := closure(work)
		for k := range work {
			if got[k].Cmp(want[k]) != 0 {
				t.Fatalf("piece %d waits for those of bits %x, want %x", k, got[k], want[k])
			}
			for _, j := range work[k].After {
				for _, i := range work[k].After {
					if k-j < 900 && got[i].Bit(j) == 1 {
						t.Fatalf("piece %d waits for %d, and for %d, which waits for it", k, j, i)
					}
				}
			}
		}
	})
}

// closure returns the pieces that each piece waits for, directly or not, as bits.
func closure(work []Work) []*big.Int {
	list := make([]*big.Int, len(work))
	for k, w := range work {
		list[k] = new(big.Int)
		for _, j := range w.After {
			list[k].SetBit(list[k], j, 1).Or(list[k], list[j])
		}
	}
	return list
}

// longestFirst preserves the pieces and their dependencies, and always selects a ready piece with the longest chain of dependents.
func TestLongestFirst(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 5, 20, 70}).Draw(t, "pieces")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		work, called := make([]Work, n), -1
		for k := range work {
			work[k].Queue = func() error { called = k; return nil }
			for j := range k {
				if r.IntN(4) == 0 {
					work[k].After = append(work[k].After, j)
				}
			}
		}
		place, of := make([]int, n), make([]int, n) // of the pieces in the list, and back
		list := longestFirst(work)
		if len(list) != n {
			t.Fatalf("got %d pieces, want %d", len(list), n)
		}
		for at, w := range list {
			if err := w.Queue(); err != nil {
				t.Fatal(err)
			}
			place[called], of[at] = at, called
		}
		if sorted := slices.Sorted(slices.Values(of)); len(slices.Compact(sorted)) != n {
			t.Fatalf("got the pieces %v, want each once", of)
		}
		length := make([]int, n) // of the longest chain that waits for a piece
		for k := n - 1; k >= 0; k-- {
			for j := range n {
				if slices.Contains(work[j].After, k) {
					length[k] = max(length[k], length[j]+1)
				}
			}
		}
		for at, k := range of {
			var after []int
			for _, j := range work[k].After {
				after = append(after, place[j])
			}
			if slices.Sort(after); !slices.Equal(after, list[at].After) || len(after) > 0 && after[len(after)-1] >= at {
				t.Fatalf("piece %d at %d waits for %v, want %v before it", k, at, list[at].After, after)
			}
			for _, j := range of[at+1:] {
				ready := !slices.ContainsFunc(work[j].After, func(i int) bool { return place[i] >= at })
				if ready && length[j] > length[k] {
					t.Fatalf("piece %d, which %d wait for in a row, comes before %d, for which %d wait", k, length[k], j, length[j])
				}
			}
		}
	})
}
