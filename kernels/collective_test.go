package kernels

import (
	"errors"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Numbers of every element type are reduced, over memory that held others; integers wrap around.
func TestCollectiveTypes(t *testing.T) {
	testCollective[float32](t, Float32)
	testCollective[float64](t, Float64)
	testCollective[int32](t, Int32)
	testCollective[int64](t, Int64)
	testCollective[uint8](t, Uint8)
}

// Numbers of 16 bits are added in float32, and the sum is rounded once: 2^bits + 1 + 1 is lost if each sum is rounded.
func TestCollectiveHalf(t *testing.T) {
	for d, most := range map[Dtype]float32{expr.BF16: 1 << 8, expr.F16: 1 << 11} {
		in, out := make([][]byte, 3), make([][]byte, 3)
		for r, v := range []float32{most, 1, 1} {
			in[r], out[r] = Bytes([]uint16{expr.ToHalf(d, v)}), make([]byte, 2)
		}
		for mean, want := range map[bool]float32{false: most + 2, true: (most + 2) / 3} {
			c := Collective{Kind: AllReduce, Ranks: 3, Mean: mean}
			if err := errors.Join(c.Check(d, 1, 1), c.Run(d, in, out)); err != nil {
				t.Errorf("%v of %v: %v", c, d, err)
			}
			for r := range out {
				if got := Elements[uint16](out[r])[0]; got != expr.ToHalf(d, want) {
					t.Errorf("%v of %v, rank %d: got %v, want %v", c, d, r, expr.FromHalf(d, got), want)
				}
			}
		}
	}
}

func testCollective[T float32 | float64 | int32 | int64 | uint8](t *testing.T, d Dtype) {
	in := [][]T{{1, 2, 3, 250}, {4, 5, 6, 7}}
	for kind, want := range map[CollectiveKind][][]T{
		AllReduce:     {{5, 7, 9, in[0][3] + 7}, {5, 7, 9, in[0][3] + 7}},
		Reduce:        {{0, 0, 0, 0}, {5, 7, 9, in[0][3] + 7}},
		Broadcast:     {in[1], in[1]},
		AllGather:     {{1, 2, 3, 250, 4, 5, 6, 7}, {1, 2, 3, 250, 4, 5, 6, 7}},
		ReduceScatter: {{5, 7}, {9, in[0][3] + 7}},
		OwnPart:       {{1, 2}, {6, 7}},
	} {
		c := Collective{Kind: kind, Ranks: 2, Root: 1}
		if err := c.Check(d, 4, int64(len(want[0]))); err != nil {
			t.Errorf("%v of %v: %v", c, d, err)
		}
		got := [][]T{slices.Repeat([]T{99}, len(want[0])), slices.Repeat([]T{99}, len(want[1]))}
		if err := c.Run(d, [][]byte{Bytes(in[0]), Bytes(in[1])}, [][]byte{Bytes(got[0]), Bytes(got[1])}); err != nil {
			t.Errorf("%v of %v: %v", c, d, err)
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%v of %v: got %v, want %v", c, d, got, want)
		}
		if c.Mean = true; d.IsFloat() != (c.Check(d, 4, int64(len(want[0]))) == nil) {
			t.Errorf("the mean of %v: got error %v", d, c.Check(d, 4, int64(len(want[0]))))
		}
	}
}
