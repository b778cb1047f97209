package hostblas

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// plain is a product as it must be.
func plain(x kernels.Matrices[float32]) {
	for i := range x.M {
		for j := range x.N {
			var sum float32
			for l := range x.K {
				a, b := at(x, i, j, l)
				sum += *a * *b
			}
			x.C[i*x.N+j] = sum
		}
	}
}

// A wrongProduct is a product with one fault, and the error about it.
type wrongProduct struct {
	name, want string
	multiply   func(x kernels.Matrices[float32])
}

func wrongProducts() []wrongProduct {
	var calls atomic.Int64
	return []wrongProduct{
		{"right", "", plain},
		{"nothing is written", "integers, transposed false and false: element (0, 0) is NaN, want", func(kernels.Matrices[float32]) {}},
		{"adds to C", "integers, transposed false and false: element (0, 0) is NaN, want", func(x kernels.Matrices[float32]) {
			before := append([]float32(nil), x.C...)
			plain(x)
			for i, v := range before {
				x.C[i] += 0 * v
			}
		}},
		{"takes the transpose of A", "integers, transposed true and false: element", func(x kernels.Matrices[float32]) {
			if x.TransA, x.LDA = false, x.K+3; int64(len(x.A)) < x.M*x.LDA {
				x.A = append(x.A[:len(x.A):len(x.A)], make([]float32, x.M*x.LDA)...)
			}
			plain(x)
		}},
		{"takes rows without a gap", "integers, transposed false and false: element", func(x kernels.Matrices[float32]) { x.LDA -= 3; plain(x) }},
		{"skips zeros", "NaN and Inf", func(x kernels.Matrices[float32]) {
			plain(x)
			for i := range x.M {
				for j := range x.N {
					var sum float32
					for l := range x.K {
						if a, b := at(x, i, j, l); *a != 0 {
							sum += *a * *b
						}
					}
					x.C[i*x.N+j] = sum
				}
			}
		}},
		{"flushes denormal numbers", "denormal numbers", func(x kernels.Matrices[float32]) {
			plain(x)
			for i, v := range x.C {
				if math.Abs(float64(v)) < 0x1p-126 {
					x.C[i] = 0
				}
			}
		}},
		{"rounds operands to BF16", "rounding", func(x kernels.Matrices[float32]) {
			x.A = append([]float32(nil), x.A...)
			for i, v := range x.A {
				x.A[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
			}
			plain(x)
		}},
		{"depends on addresses", "operands at several places", func(x kernels.Matrices[float32]) {
			plain(x)
			if uintptr(unsafe.Pointer(&x.A[0]))%16 != 0 {
				x.C[0] = math.Nextafter32(x.C[0], 100)
			}
		}},
		{"changes from call to call", "other bits", func(x kernels.Matrices[float32]) {
			plain(x)
			if x.C[0] != float32(int(x.C[0])) && calls.Add(1)%3 == 0 {
				x.C[0] = math.Nextafter32(x.C[0], 100)
			}
		}},
		{"writes behind C", "beyond the result", func(x kernels.Matrices[float32]) { plain(x); x.C[:len(x.C)+1][len(x.C)] = 0 }},
		{"loses terms of long sums", "matrices beyond", func(x kernels.Matrices[float32]) { x.K = min(x.K, 384); plain(x) }},
		{"loses the last row of many", "matrices beyond", func(x kernels.Matrices[float32]) {
			plain(x)
			if x.M > 64 {
				clear(x.C[64*x.N:])
			}
		}},
	}
}

// Products that are wrong in one way each are refused.
func TestCheckRefuses(t *testing.T) {
	for _, c := range wrongProducts() {
		var errs []string
		for _, forms := range [][]form{matrices, rows, columns} {
			if err := checkProducts(forms, c.multiply); err != nil {
				errs = append(errs, err.Error())
			}
		}
		all := strings.Join(errs, "\n")
		if c.want == "" && all != "" || !strings.Contains(all, c.want) {
			t.Errorf("%s: got errors %q, want %q", c.name, all, c.want)
		}
	}
}

// compile makes a library of a C source.
func compile(t *testing.T, name, source string) (file string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if runtime.GOOS != "linux" || err != nil {
		t.Skipf("SKIPPED, NOT TESTED: no C compiler on Linux (%v)", err)
	}
	dir := t.TempDir()
	from, file := filepath.Join(dir, name+".c"), filepath.Join(dir, "lib"+name+".so")
	testutil.Write(t, from, source)
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", file, from).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// A library without threads is called once at a time, and one whose products with vectors
// alone are wrong is used for matrices.
func TestOpenInPart(t *testing.T) {
	const source = `
		#define GEMM(name, T) void name(char *ta, char *tb, int *m, int *n, int *k, T *alpha, T *a, int *lda, T *b, int *ldb, T *beta, T *c, int *ldc) { \
			for (int i = 0; i < *m; i++) for (int j = 0; j < *n; j++) { \
				T sum = 0; \
				for (int l = 0; l < *k; l++) sum += (*ta == 'T' ? a[l + i * *lda] : a[i + l * *lda]) * (*tb == 'T' ? b[j + l * *ldb] : b[l + j * *ldb]); \
				c[i + j * *ldc] = sum; \
			} }
		GEMM(sgemm_, float)
		GEMM(dgemm_, double)
		void sgemv_(void) {}
		void dgemv_(void) {}
		char *openblas_get_config(void) { return "OpenBLAS 0.3.29"; }
		static int threads;
		void openblas_set_num_threads(int n) { threads = n; }
		int openblas_get_num_threads(void) { return threads; }
		int openblas_get_parallel(void) { return 0; }`
	file := compile(t, "part", source)
	l, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if cap(l.calls) != 1 {
		t.Errorf("it is called %d times at once, want 1", cap(l.calls))
	}
	if n := call(symbol(present(file), "openblas_get_num_threads")); n != 1 {
		t.Errorf("its number of threads is %d, want 1", n)
	}
	want := file + "), small ones and products with vectors that failed its check by gonum"
	if got := l.String() + l.rest(); !strings.HasSuffix(got, want) {
		t.Errorf("it says %q, want %q at the end", got, want)
	}
	x := kernels.Matrices[float32]{M: 64, N: 64, K: 64, A: make([]float32, 4096), LDA: 64, B: make([]float32, 4096), LDB: 64, C: make([]float32, 4096)}
	matrices := l.Multiply32(x)
	x.N, x.LDB = 1, 1
	if vector := l.Multiply32(x); !matrices || vector {
		t.Errorf("it multiplies matrices: %v, a matrix and a vector: %v, want true and false", matrices, vector)
	}
}

// A library that loads is refused if it has not all functions, is too old or multiplies
// wrongly, each time that it is asked for.
func TestOpenRefuses(t *testing.T) {
	const functions = `
		void sgemm_(char *ta, char *tb, int *m, int *n, int *k, float *alpha, float *a, int *lda, float *b, int *ldb, float *beta, float *c, int *ldc) {}
		void dgemm_(void) {}
		void sgemv_(void) {}
		void dgemv_(void) {}`
	const openblas = functions + `
		char *openblas_get_config(void) { return "OpenBLAS %s"; }
		void openblas_set_num_threads(int n) {}
		int openblas_get_parallel(void) { return %d; }`
	for name, c := range map[string]struct{ source, want string }{
		"empty":    {"", "has no function sgemm_"},
		"part":     {"void sgemm_64_(void) {}", "has no function sgemv_64_"},
		"wrong":    {functions, "BLAS of an unknown vendor is refused: sgemm: "},
		"new":      {fmt.Sprintf(openblas, "0.3.29 DYNAMIC_ARCH", 1), "OpenBLAS 0.3.29 is refused: sgemm: "},
		"old":      {fmt.Sprintf(openblas, "0.3.8 DYNAMIC_ARCH", 1), "OpenBLAS 0.3.8 has errors, want 0.3.12 or newer"},
		"nameless": {fmt.Sprintf(openblas, "DYNAMIC_ARCH", 1), "does not report its version"},
		"openmp":   {fmt.Sprintf(openblas, "0.3.29", 2), "uses OpenMP, whose omp_set_num_threads is not there"},
		"mkl":      {functions + "void MKL_Get_Version_String(void) {}", "has no MKL_Set_Threading_Layer"},
		"blis":     {functions + `char *bli_info_get_version_str(void) { return "0.9"; }`, "BLIS 0.9 has no bli_thread_set_num_threads"},
	} {
		file := compile(t, name, c.source)
		for range 2 {
			if _, err := Open(file); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), file) {
				t.Errorf("%s: got error %v, want %s: %s", name, err, file, c.want)
			}
		}
	}
	if _, err := Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "another part of this program uses it") {
		t.Errorf("a library that is there already: got error %v", err)
	}
}
