// Package hostblas chooses the library that multiplies matrices on the host: the BLAS given to gorgonia.Use; if
// that is still gonum's, an OpenBLAS, BLIS, MKL or Accelerate library of this machine, loaded when
// it is first needed, without cgo; and gonum's if there is none.
//
// # Requirements of a library
//
// A matmul by a library keeps the guarantees of a matmul by gonum:
//
//   - The same input produces the same bits. The number of cores, concurrent work and the addresses
//     of operands do not change the result.
//   - NaN and Inf follow IEEE 754, including 0 x Inf.
//   - The error of an element is at most one rounding for each of its terms.
//
// Libraries do not guarantee any of this. In a multithreaded call, the number of threads determines
// how matrices are split, and therefore the order of sums. Concurrent calls have given wrong results
// in many versions of OpenBLAS. Therefore each call uses one thread, and separate calls compute tiles
// of C on all cores. The tiles depend only on the sizes. [check] tests the other guarantees when a
// library is loaded, and a library that fails is refused.
//
// Libraries only multiply matrices, from a size on where they are faster. Products with vectors,
// where memory is the limit, and small matrices stay with gonum. So do [kernels.Plan.Run] and the
// interpreter of programs, which define results: their bits may differ from a library's by the
// order of sums, within the bound above.
package hostblas

import (
	"fmt"
	"os"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"gonum.org/v1/gonum/blas/gonum"
)

// Variable is the environment variable that chooses: "gonum" loads no library; "openblas", "blis",
// "mkl" or "accelerate" allows that kind alone; anything with a dot or a slash is the file of a
// library. It is an error if there is no such library, or if it is refused.
const Variable = "STHENO_BLAS"

// found is the outcome of the search for a library.
type found struct {
	library *Library // nil for gonum's BLAS
	why     string   // why there is none
	err     error    // the error if the one that Variable asks for cannot be used
}

// search looks for a library, once.
var search = sync.OnceValue(func() found { return find(os.Getenv(Variable), Open) })

// For returns the BLAS that multiplies on the host, where Gorgonia uses the given one. It is an error if
// the library that [Variable] asks for cannot be used.
func For(given kernels.BLAS) (kernels.BLAS, error) {
	if !isGonums(given) {
		return given, nil
	}
	if os.Getenv(Variable) != "" {
		if err := search().err; err != nil {
			return nil, err
		}
	}
	return onDemand{gonum.Implementation{}}, nil
}

// Describe names the BLAS that multiplies on the host, where Gorgonia uses the given one, and if that is
// gonum's, why.
func Describe(given kernels.BLAS) string {
	if !isGonums(given) {
		return fmt.Sprintf("the BLAS given to gorgonia.Use, %T", given)
	}
	switch f := search(); {
	case f.err != nil:
		return f.err.Error()
	case f.library != nil:
		return f.library.String() + f.library.rest()
	default:
		return "gonum: " + f.why
	}
}

// isGonums reports whether a BLAS is Gorgonia's default, or the one that [For] returns for it.
func isGonums(b kernels.BLAS) bool {
	switch b.(type) {
	case nil, gonum.Implementation, onDemand:
		return true
	}
	return false
}

// onDemand loads a library for the first product that is large enough for it. It embeds an interface: programs that use package reflect link every method of gonum's
// implementation, 290 of them, once more for each type that embeds it.
type onDemand struct{ kernels.BLAS }

var _ kernels.Multiplier = onDemand{}

// Multiply32 implements [kernels.Multiplier].
func (onDemand) Multiply32(x kernels.Matrices[float32]) bool {
	return worthwhile(x) && search().library != nil && search().library.Multiply32(x) || x.Multiply()
}

// Multiply64 implements [kernels.Multiplier].
func (onDemand) Multiply64(x kernels.Matrices[float64]) bool {
	return worthwhile(x) && search().library != nil && search().library.Multiply64(x) || x.Multiply()
}
