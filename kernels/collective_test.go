package kernels

import (
	"slices"
	"testing"
)

// Numbers of every element type are reduced, over memory that held others; integers wrap around.
func TestCollectiveTypes(t *testing.T) {
	testCollective[float32](t, Float32)
	testCollective[float64](t, Float64)
	testCollective[int32](t, Int32)
	testCollective[int64](t, Int64)
	testCollective[uint8](t, Uint8)
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
