package kernels

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Outputs may lie where operands do, each of them: all of a block is read before any of
// it is written.
func TestMapInPlace(t *testing.T) {
	for _, n := range []int{1, 5, expr.BlockSize, 3*expr.BlockSize + 7, 1 << 17} {
		b := expr.NewBuilder(Float32, Float32, Float32)
		x, y, z := b.Operand(0), b.Operand(1), b.Operand(2)
		sum := b.Apply(expr.Add, x, z)
		f, err := b.Func(sum, x, b.Apply(expr.Mul, sum, y)) // the second is an operand that the first writes over
		if err != nil {
			t.Fatal(err)
		}
		v := Dense([]int{n})
		p, err := Map(HostDevice(), f, []int{n}, v, v, v)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(rand.Uint64(), 0))
		memory, want := make([][]byte, 3), make([][]byte, 3)
		for i := range memory {
			memory[i], want[i] = make([]byte, 4*n), make([]byte, 4*n)
			for k := range n {
				Elements[float32](memory[i])[k] = r.Float32()
			}
		}
		if err := (Host{}).Run(p, memory, want, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want[1], memory[0]) {
			t.Fatalf("%d elements: the output that is an operand differs from it", n)
		}
		if err := (Host{}).Run(p, memory, memory, nil); err != nil {
			t.Fatal(err)
		}
		for k := range want {
			if !bytes.Equal(memory[k], want[k]) {
				t.Errorf("%d elements: output %d over an operand differs from one elsewhere", n, k)
			}
		}
	}
}
