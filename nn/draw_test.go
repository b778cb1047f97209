package nn_test

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Initial values are those of one generator called in order, on any number of cores, whatever number of random words an element takes.
func TestInitialValuesInOrder(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	r := testutil.Random(t)
	calls := 0
	for name, init := range map[string]func() nn.Init{
		"Normal":  func() nn.Init { return nn.Normal(0.02) },
		"Uniform": func() nn.Init { return nn.Uniform(0.5) },
		"one word or many": func() nn.Init {
			return func(r *rand.Rand) float64 {
				sum := 0.
				for r.IntN(3) > 0 {
					sum += r.ExpFloat64()
				}
				return sum
			}
		},
		"four words, so that most chunks begin within an element": func() nn.Init {
			return func(r *rand.Rand) float64 { return r.Float64() - r.Float64() + r.Float64() - r.Float64() }
		},
		"one element takes more than a chunk": func() nn.Init {
			return func(r *rand.Rand) float64 {
				if v := r.Float64(); v > 1e-5 {
					return v
				}
				sum := 0.
				for range 100_000 {
					sum += r.Float64()
				}
				return sum
			}
		},
		"in pairs": func() nn.Init {
			spare := math.NaN()
			return func(r *rand.Rand) float64 {
				v := spare
				if spare = math.NaN(); v != v {
					v, spare = r.NormFloat64(), r.NormFloat64()
				}
				return v
			}
		},
		"a count": func() nn.Init {
			calls = 0
			return func(*rand.Rand) float64 { calls++; return float64(calls) }
		},
	} {
		runtime.GOMAXPROCS(1 + r.IntN(9))
		seed, n := r.Uint64(), 200_000+r.IntN(300_000)
		p := nn.New(G.NewGraph(), nn.Seed(seed), nn.Dtype(tensor.Float64)).At("a").Parameter("weight", init(), n)
		got := elements(t, p.Value())
		h := fnv.New64a()
		h.Write([]byte("a.weight"))
		one, draw := rand.New(rand.NewPCG(seed, h.Sum64())), init()
		for i, g := range got {
			if want := draw(one); g != want {
				t.Fatalf("%s, %d elements, %d cores: element %d is %v, want %v", name, n, runtime.GOMAXPROCS(0), i, g, want)
			}
		}
		if len(got) != n {
			t.Errorf("%s: got %d elements, want %d", name, len(got), n)
		}
	}
}

// The panic of an Init in any goroutine, at any element, reaches the caller of Parameter.
func TestInitialValuesPanic(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	r := testutil.Random(t)
	for range 10 {
		runtime.GOMAXPROCS(1 + r.IntN(9))
		n := 1 + r.IntN(400_000)
		var calls, at atomic.Int64
		at.Store(1 + r.Int64N(int64(n)))
		init := func(r *rand.Rand) float64 {
			if calls.Add(1) == at.Load() {
				panic("an Init")
			}
			return r.Float64()
		}
		got := func() (got any) {
			defer func() { got = recover() }()
			nn.New(G.NewGraph()).Parameter("weight", init, n)
			return nil
		}()
		if got != "an Init" {
			t.Errorf("%d elements, a panic at call %d: the caller got %v", n, at.Load(), got)
		}
	}
}

// A parameter without a shape has the value that one of a single element has.
func TestScalarParameter(t *testing.T) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		for name, init := range map[string]nn.Init{"Constant": nn.Constant(0.75), "Normal": nn.Normal(2)} {
			value := func(shape ...int) float64 {
				s := nn.New(G.NewGraph(), nn.Dtype(dt))
				scalar := s.Parameter("a", init, shape...)
				testutil.Do(t, s.Err())
				switch v := scalar.Value().Data().(type) {
				case float32:
					return float64(v)
				case float64:
					return v
				case []float32:
					return float64(v[0])
				}
				return scalar.Value().Data().([]float64)[0]
			}
			if got, want := value(), value(1); got != want || got == 0 {
				t.Errorf("%v, %s: got %v without a shape, want %v", dt, name, got, want)
			}
		}
	}
}
