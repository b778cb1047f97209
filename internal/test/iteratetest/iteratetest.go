// Package iteratetest makes inputs of kernels.Iterate that expose every late element: with their
// weights any error of a half step reaches the result, and a right result is exact.
package iteratetest

import (
	"math/bits"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
)

// A Rotation is n x n weights and n values. A transformation P = W1 X, X = W2 P
// moves each value to the place of another, all of them in one cycle, with a sign:
//
//	W1 = H S1, W2 = S2 H / q
//
// S1 and S2 are random permutations with random signs. H is symmetric with H H = q I: Hadamard
// matrices along its diagonal, of the largest power of two, q, that divides n. So P depends on all
// of X if n is a power of two, every element changes in every step, and an error keeps its length.
// The values are integers of at most 2^16 in magnitude: in double precision all sums are exact, in
// whatever order.
type Rotation struct {
	W1, W2 []float32 // row-major, or their transposes
	X      []float32
	turn   permutation // one transformation
}

// A permutation has element of[i] at i, times sign[i].
type permutation struct {
	of   []int
	sign []float32
}

// New draws a Rotation of n values. With transposed the matrices are stored
// transposed, for a kernel that uses their transposes.
func New(r *rand.Rand, n int, transposed bool) *Rotation {
	o := &Rotation{W1: make([]float32, n*n), W2: make([]float32, n*n), X: make([]float32, n)}
	s1, s2, turn := newPermutation(n), newPermutation(n), newPermutation(n)
	order, cycle := r.Perm(n), r.Perm(n)
	at := make([]int, n) // where S1 takes an element
	for i, k := range order {
		s1.of[i], at[k] = k, i
	}
	for i, k := range cycle {
		turn.of[k] = cycle[(i+1)%n]
	}
	for i := range n {
		s1.sign[i], s2.sign[i] = sign(r), sign(r)
		s2.of[i] = at[turn.of[i]]
		o.X[i] = sign(r) * float32(1+r.IntN(1<<16))
	}
	q := n & -n // rows of each block of H
	down, along := n, 1
	if transposed {
		down, along = along, down
	}
	for i := range n {
		turn.sign[i] = s2.sign[i] * s1.sign[s2.of[i]]
		// Column s1.of[i] of W1 is column i of H; row i of W2 is row s2.of[i] of H.
		column, row := i&^(q-1), s2.of[i]&^(q-1) // where the blocks begin
		for k := range q {
			o.W1[(column+k)*down+s1.of[i]*along] = s1.sign[i] * hadamard(k, i-column)
			o.W2[i*down+(row+k)*along] = s2.sign[i] * hadamard(k, s2.of[i]-row) / float32(q)
		}
	}
	o.turn = turn
	return o
}

func newPermutation(n int) permutation { return permutation{make([]int, n), make([]float32, n)} }

func sign(r *rand.Rand) float32 { return float32(1 - 2*r.IntN(2)) }

// hadamard is an element of a Hadamard matrix of a power of two rows (Sylvester's).
func hadamard(i, k int) float32 { return float32(1 - 2*(bits.OnesCount(uint(i&k))&1)) }

// Inputs are those of a plan of kernels.Iterate: W1, W2 and X.
func (o *Rotation) Inputs() [][]byte {
	return [][]byte{kernels.Bytes(o.W1), kernels.Bytes(o.W2), kernels.Bytes(o.X)}
}

// After returns X after a number of transformations, exactly.
func (o *Rotation) After(steps int) []float32 {
	x, next := append([]float32(nil), o.X...), make([]float32, len(o.X))
	for range steps {
		for i, k := range o.turn.of {
			next[i] = o.turn.sign[i] * x[k]
		}
		x, next = next, x
	}
	return x
}
