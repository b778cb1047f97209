package codegen

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// Outputs may lie where operands do, each of them: all of a block is read before any of
// it is written.
func TestMapInPlace(t *testing.T) {
	for _, n := range []int{1, 5, expr.BlockSize, 3*expr.BlockSize + 7, 1 << 17} {
		b := expr.NewBuilder(kernels.Float32, kernels.Float32, kernels.Float32)
		x, y, z := b.Operand(0), b.Operand(1), b.Operand(2)
		sum := b.Apply(expr.Add, x, z)
		f, err := b.Func(sum, x, b.Apply(expr.Mul, sum, y)) // the second is an operand that the first writes over
		if err != nil {
			t.Fatal(err)
		}
		v := Dense([]int{n})
		p, err := Map(kernels.HostDevice(), f, []int{n}, v, v, v)
		if err != nil {
			t.Fatal(err)
		}
		r := testutil.Random(t)
		memory, want := make([][]byte, 3), make([][]byte, 3)
		for i := range memory {
			memory[i], want[i] = make([]byte, 4*n), make([]byte, 4*n)
			for k := range n {
				kernels.Elements[float32](memory[i])[k] = r.Float32()
			}
		}
		if err := (kernels.Host{}).Run(p, memory, want, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want[1], memory[0]) {
			t.Fatalf("%d elements: the output that is an operand differs from it", n)
		}
		if err := (kernels.Host{}).Run(p, memory, memory, nil); err != nil {
			t.Fatal(err)
		}
		for k := range want {
			if !bytes.Equal(memory[k], want[k]) {
				t.Errorf("%d elements: output %d over an operand differs from one elsewhere", n, k)
			}
		}
	}
}

// On a device, too, each element of a dense operand is read by the thread that writes the
// output's element of that index, also where another operand is read by tiles: at the same
// place in memory, and through no vector or tile that begins elsewhere.
func TestMapReadsDenseOperandsInOrder(t *testing.T) {
	b := expr.NewBuilder(kernels.Float32, kernels.Float32)
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.Add, b.Operand(0), b.Operand(1))))
	byTiles := 0
	testutil.CheckProperty(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 3, 16, 33, 100}), 2, 4).Draw(t, "shape")
		turned, next := View{Elements: kernels.Count(shape), Strides: make([]int, len(shape))}, 1
		axes := make([]int, len(shape))
		for a := range axes {
			axes[a] = a
		}
		for _, a := range rapid.Permutation(axes).Draw(t, "axes") {
			turned.Strides[a] = next
			next *= shape[a]
		}
		for _, sms := range []int{0, 132} { // few elements have kernels of their own
			n := newMap(kernels.Device{Major: 9, SMs: sms}, call{f: f, shape: shape, operands: []View{Dense(shape), turned}}, nil)
			switch letter := placeLetters(n.layout, 0, 1); {
			case letter == "d", letter == "s" && n.rows == 1:
			case letter == "g" && n.layout.tile > 0 && slices.Equal(n.rowStrides[0], n.rowStrides[2]) && n.views[0].Offset == 0 && n.views[2].Offset == 0:
				byTiles++
			default:
				t.Fatalf("dense operand of %v is read as %s, at %v from %d on; the output is at %v; %+v", shape, letter, n.rowStrides[0], n.views[0].Offset, n.rowStrides[2], n.layout)
			}
		}
	})
	if byTiles == 0 && !testing.Short() { // which draws few shapes
		t.Error("no operand was read by tiles")
	}
}
