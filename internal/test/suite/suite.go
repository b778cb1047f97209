// Package suite tests every op of package opspec: plans against the reference, on the host and on a GPU (plans.go),
// graphs on machines (machines.go), gradients against differences (gradients.go), bad input (input.go), launches
// against entry points (launches.go). Its checks return errors, so that tests can show that they fail.
package suite

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/internal/test/compare"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// seed is STHENO_SEED, or new in every run; every test prints it.
var seed = seedOf(os.Getenv("STHENO_SEED"))

func seedOf(s string) uint64 {
	if seed, err := strconv.ParseUint(s, 10, 64); err == nil {
		return seed
	}
	return rand.Uint64()
}

// Random returns a generator for one test: other numbers for every name, the same
// ones when the test runs alone.
func Random(t *testing.T) *rand.Rand {
	t.Logf("STHENO_SEED=%d", seed)
	return named(t.Name())
}

// named returns the generator of a name.
func named(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// GPU returns the first CUDA device. Without one the test is skipped, or fails where
// STHENO_REQUIRE_GPU=1.
func GPU(t *testing.T) kernels.Device {
	t.Helper()
	devices, err := stheno.Devices()
	testutil.SkipUnless(t, "GPU", err)
	return devices[0].Device
}

// parallelOnHost runs a test side by side with others where there is no GPU, which
// they would share.
func parallelOnHost(t *testing.T) {
	if _, err := stheno.Devices(); err != nil {
		t.Parallel()
	}
}

// maxElements, STHENO_MAX_ELEMENTS, leaves out larger cases: for checkers that
// slow kernels down a thousandfold.
var maxElements, _ = strconv.Atoi(os.Getenv("STHENO_MAX_ELEMENTS"))

// part and parts, STHENO_PART=2/3, run the second third of an op's tests: for
// checkers so slow that there is no time for all in one go.
var part, parts = partOf(os.Getenv("STHENO_PART"))

func partOf(s string) (part, parts int) {
	if n, err := fmt.Sscanf(s, "%d/%d", &part, &parts); n != 2 || err != nil || parts < 1 {
		return 0, 1
	}
	return part % parts, parts
}

// A selection reports whether a test is for a case.
type selection func(s opspec.Spec, c opspec.Case) bool

func every(opspec.Spec, opspec.Case) bool { return true }

// planned selects cases of one op, which has a plan.
func planned(_ opspec.Spec, c opspec.Case) bool { return !c.Composed }

func differentiable(s opspec.Spec, _ opspec.Case) bool { return !s.NoGradient && !s.Stops }

// differentiableOp selects cases of one op that has a gradient.
func differentiableOp(s opspec.Spec, c opspec.Case) bool {
	return planned(s, c) && differentiable(s, c)
}

// each calls f on the selected cases of at most limit elements, those drawn at random
// included, in every type.
func each(t *testing.T, limit int, want selection, f func(t *testing.T, s opspec.Spec, c opspec.Case, dt kernels.Dtype)) {
	for _, s := range opspec.All() {
		if !slices.ContainsFunc(s.Cases, func(c opspec.Case) bool { return want(s, c) }) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			ran := 0
			for _, c := range Cases(t, s) {
				if !want(s, c) || c.Elements() > limit || testing.Short() && c.Elements() > limit/16 || maxElements > 0 && c.Elements() > maxElements {
					continue
				}
				for _, dt := range c.Types {
					if ran++; ran%parts == part {
						t.Run(fmt.Sprintf("%s/%v", c.Name, dt), func(t *testing.T) { f(t, s, c, dt) })
					}
				}
			}
			if ran == 0 {
				t.Error("no case was run")
			}
		})
	}
}

// drawn reports whether a type is the one that is drawn for a case and a part of a test.
func drawn(s opspec.Spec, c opspec.Case, dt kernels.Dtype, part string) bool {
	return dt == c.Types[named(s.Name+c.Name+part).IntN(len(c.Types))]
}

// drawnType reports whether a floating-point type is the one that is drawn for a case. A test that takes long has each case in one type.
func drawnType(s opspec.Spec, c opspec.Case, dt kernels.Dtype) bool {
	types := slices.DeleteFunc(slices.Clone(c.Types), func(dt kernels.Dtype) bool { return !dt.IsFloat() })
	return len(types) == 0 || dt == types[named(s.Name+c.Name).IntN(len(types))]
}

// Cases returns the cases of an op that tests run, and some drawn at random.
func Cases(t *testing.T, s opspec.Spec) []opspec.Case {
	cases := slices.DeleteFunc(slices.Clone(s.Cases), func(c opspec.Case) bool { return !c.Tested() })
	r := Random(t)
	draws := 4
	if testing.Short() {
		draws = 2
	}
	for i := range draws {
		c := s.Random(r)
		c.Name = fmt.Sprintf("random %d %v %s", i, c.Shapes, c.Name)
		cases = append(cases, c)
	}
	return cases
}

// bytesOf returns numbers as operands of a plan.
func bytesOf(dt kernels.Dtype, xs [][]float64) [][]byte {
	bs := make([][]byte, len(xs))
	for i := range xs {
		bs[i] = opspec.Encode(dt, xs[i])
	}
	return bs
}

// poison in every byte is a NaN of a payload that no arithmetic makes.
const poison = 0xff

// Identical compares bytes of dt with others, to the bit.
func Identical(dt kernels.Dtype, got, want []byte) error {
	if dt == kernels.Float32 {
		return compare.Identical(kernels.Elements[float32](Aligned(got)), kernels.Elements[float32](Aligned(want)))
	}
	return compare.Identical(opspec.Decode(dt, Aligned(got)), opspec.Decode(dt, Aligned(want)))
}

// Aligned copies bytes to where elements of any type may lie.
func Aligned(b []byte) []byte {
	a := kernels.Bytes(make([]float64, (len(b)+7)/8))[:len(b)]
	copy(a, b)
	return a
}

// Numbers returns a value as float64, row-major.
func Numbers(v gorgonia.Value) ([]float64, error) {
	mem, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	dt, _ := values.Dtype(v.Dtype())
	return opspec.Decode(dt, mem), nil
}
