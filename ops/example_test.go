package ops_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// matrix is 1 2 3, 4 5 6.
func matrix() *G.Node {
	return G.NewMatrix(G.NewGraph(), G.Float64, G.WithShape(2, 3), G.WithName("x"), G.WithInit(G.RangedFrom(1)))
}

// run runs a node's graph on Gorgonia's own machine and prints the node's value.
func run(y *G.Node, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	vm := G.NewTapeMachine(y.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Value())
}

func ExampleSum() {
	run(ops.Sum(matrix()))    // all
	run(ops.Sum(matrix(), 0)) // columns
	run(ops.Sum(matrix(), 1)) // rows
	run(ops.Sum(matrix(), 2))
	// Output:
	// 21
	// [5  7  9]
	// [ 6  15]
	// ops: Sum[2]: got axis 2 of shape (2, 3), want -2 <= axis < 2
}

func ExampleMatMul() {
	x := matrix()
	run(ops.MatMul(x, x, ops.TransB())) // x xᵀ
	// Output:
	// ⎡14  32⎤
	// ⎣32  77⎦
}

func ExampleWindowSum() {
	run(ops.WindowSum(matrix(), 1, ops.Same())) // three elements, zeros outside
	// Output:
	// ⎡ 3   6   5⎤
	// ⎣ 9  15  11⎦
}

func ExampleDot() {
	x := matrix()
	run(ops.Dot(x, x)) // row by row
	// Output: [14  77]
}

func ExampleBroadcast() {
	bias, err := ops.Sum(matrix(), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	run(ops.Broadcast(bias, 2, 0))
	// Output:
	// ⎡5  7  9⎤
	// ⎣5  7  9⎦
}

func ExampleMap() {
	x := matrix()
	run(ops.Map("select(a < 4, 0, square(a) + b)", x, x))
	run(ops.Map("a + c", x, x))
	// Output:
	// ⎡ 0   0   0⎤
	// ⎣20  30  42⎦
	//
	// ops: Map("a + c"): at 5: got c, want a number, a name of a, b, a function or (
}
