package cudaops

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// Zero values and nils are errors of sessions, and nothing panics.
func TestSessionSurvives(t *testing.T) {
	s, other, closed := OpenHost(), OpenHost(), OpenHost()
	testutil.Do(t, closed.Close())
	testutil.Survive(t, map[string]any{"Open": Open, "OpenHost": OpenHost, "Session.Close": nil},
		s, closed, testutil.Get[*Buffer](t)(s.Alloc(8)), testutil.Get[*Buffer](t)(other.Alloc(8)), make([]byte, 4), make([]byte, 400),
		[3]int{1, 1, 1}, [3]int{-1, math.MaxInt, 1}, -1, 1, int64(-1), int64(1<<40), int64(math.MaxInt64), int32(7), "text",
		&kernels.Kernel{Body: func(c kernels.Call) { kernels.Args[struct{ N int64 }](c) }}, &kernels.Kernel{Image: kernels.Builtin().Image("none")})
	testutil.Do(t, s.Close())
	testutil.Survive(t, nil, s, new(Session))
}

// Zero values and nils are errors of a Store, and nothing panics.
func TestStoreSurvives(t *testing.T) {
	closed := NewStore()
	testutil.Do(t, closed.Close())
	values := []Learnable{{Name: "a", Value: vector(1, 2)}, {Name: "b", Value: (*tensor.Dense)(nil)}}
	testutil.Survive(t, map[string]any{"NewStore": NewStore, "Store.Close": nil}, NewStore(), closed, values[:1], values[1:], make([]Learnable, 1))
	testutil.Survive(t, nil, NewStore(), new(Store))
}
