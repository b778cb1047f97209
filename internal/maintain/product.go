package maintain

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// Product is C = A B of M x K and K x N elements of float32, whose errors against float64 are compared with those of another
// library on the same operands.
type Product struct {
	Operands string // in words
	A, B     string // kinds of elements, see [matrix]
	M, N, K  int64
	// Exact is set if float32 arithmetic in any order gives the exact result.
	Exact bool
	// Peers is the folder of the other library's results, "" for none: a file for each case, see [Product.file], and the library's
	// name in the file "by".
	Peers string
}

// Key implements [Case].
func (p Product) Key() records.Key {
	return records.Key{Op: "MatMul", Case: fmt.Sprintf("%s, %d x %d x %d", p.Operands, p.M, p.K, p.N), Dtype: kernels.Float32.String()}
}

// file is the name of the file of a matrix of the case, "a", "b" or "c".
func (p Product) file(matrix string) string {
	return strings.ReplaceAll(p.Key().Case, "/", "-") + "." + matrix + ".f32"
}

// Describe implements [Case]. The files are those that [Product.WriteOperands] writes, and that of the result.
func (p Product) Describe() any {
	return map[string]any{"a": p.file("a"), "b": p.file("b"), "c": p.file("c"), "m": p.M, "n": p.N, "k": p.K}
}

// WriteOperands writes A and B into files of a folder, row-major.
func (p Product) WriteOperands(dir string) error {
	a, b := p.matrices()
	return errors.Join(os.WriteFile(filepath.Join(dir, p.file("a")), kernels.Bytes(a), 0o666), os.WriteFile(filepath.Join(dir, p.file("b")), kernels.Bytes(b), 0o666))
}

// Measure implements [Case]: it computes the product as plans do by default, and by FMA alone.
func (p Product) Measure(on Bench) ([]records.Record, error) {
	a, b := p.matrices()
	fma := on.Device.Device
	fma.FMA = true
	list := []records.Record{{}, {By: records.FMA}}
	var results [][]float32
	for i, dev := range []kernels.Device{on.Device.Device, fma} {
		plan, err := gemm.Product{Batch: 1, M: p.M, N: p.N, K: p.K}.Plan(dev)
		if err != nil {
			return nil, err
		}
		if list[i].Kernels, err = plan.Digests(); err != nil {
			return nil, err
		}
		results = append(results, make([]float32, p.M*p.N))
		if err := bench.Run(on.Device.Ordinal, plan, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(results[i])); err != nil {
			return nil, err
		}
	}
	if p.Peers != "" {
		by, err := os.ReadFile(filepath.Join(p.Peers, "by"))
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(p.Peers, p.file("c")))
		if err == nil && int64(len(text)) != 4*p.M*p.N {
			err = fmt.Errorf("%s: got %d bytes, want %d", p.file("c"), len(text), 4*p.M*p.N)
		}
		if err != nil {
			return nil, err
		}
		list, results = append(list, records.Record{By: strings.TrimSpace(string(by))}), append(results, kernels.Elements[float32](text))
	}
	for i, e := range p.errors(a, b, results...) {
		list[i].Kind, list[i].Key, list[i].Note = records.Error, p.Key(), "all"
		list[i].Values = map[string]float64{"largest": e.Largest, "mean": e.Mean, "wrong": float64(e.Wrong)}
	}
	return list, nil
}

// special is a timed product of square matrices, the first of which has special elements.
type special struct {
	operands, kind string
	side           int64
}

// specials returns the timed cases of each size, that with the usual kind of A first.
func specials() (cases []Case) {
	for _, side := range []int64{256, 512, 1024, 4096} {
		for _, s := range [][2]string{{"uniform in [-1, 1)", "signed"}, {"all NaN", "nan"}, {"one in 1000 Inf or NaN", "special"}, {"one in 16 denormal", "mixed"}, {"all denormal", "denormal"}} {
			cases = append(cases, special{s[0], s[1], side})
		}
	}
	return cases
}

// Key implements [Case].
func (s special) Key() records.Key {
	return records.Key{Op: records.SpecialTimes, Case: fmt.Sprintf("%d, %s", s.side, s.operands), Dtype: kernels.Float32.String()}
}

// Describe implements [Case]: no other library is timed.
func (special) Describe() any { return nil }

// Measure implements [Case].
func (s special) Measure(on Bench) ([]records.Record, error) {
	a, b := matrix(s.kind, 1, s.side, s.side), matrix("signed", 2, s.side, s.side)
	plan, err := gemm.Product{Batch: 1, M: s.side, N: s.side, K: s.side}.Plan(on.Device.Device)
	if err != nil {
		return nil, err
	}
	r, _, err := timePlan(s, on, plan, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, 60*time.Millisecond, plan.Bytes())
	r.Note = "no"
	return []records.Record{r}, err
}

// products returns the products whose errors are measured. Those of 256 rows are small ones, the others large.
func products() (cases []Case) {
	add := func(operands, a, b string, exact bool, shapes ...[3]int64) {
		for _, s := range shapes {
			cases = append(cases, Product{Operands: operands, A: a, B: b, M: s[0], K: s[1], N: s[2], Exact: exact})
		}
	}
	small, square, deep, long := [3]int64{256, 256, 256}, [3]int64{768, 768, 768}, [3]int64{512, 4096, 512}, [3]int64{72, 250_007, 72}
	flat, middle := [3]int64{2048, 128, 2048}, [3]int64{1280, 320, 1280}
	add("uniform in [-1, 1)", "signed", "signed", false, [3]int64{256, 64, 256}, small, flat, middle, deep)
	add("uniform in [0, 1)", "positive", "positive", false, [3]int64{256, 64, 256}, small, flat, middle, deep, long)
	add("times 2^-60 to 2^60 within a row, both", "spread", "spread", false, small, flat, middle, deep)
	add("A's rows and B's columns times 2^-62 to 2^62", "rows", "columns", false, small, [3]int64{1024, 256, 1024}, middle)
	add("A's rows times 2^-120 to 2^120", "far rows", "signed", false, small, [3]int64{1024, 256, 1024}, deep)
	add("A of all magnitudes", "sizes", "signed", false, small, deep)
	add("A near 2^-130, B near 2^110", "tiny", "huge", false, small, deep)
	add("products near 2^-140", "small", "small", false, small, deep)
	add("A near 2^127, B near 2^-9", "greatest", "least", false, small, deep)
	add("A denormal, B near 2^110", "denormal", "huge", false, small, deep)
	add("one in 16 of A denormal", "mixed", "signed", false, small, deep)
	add("any bits times the identity", "bits", "identity", true, small, square)
	add("any bits times a permutation", "bits", "permutation", true, small, square)
	add("one-hot rows times any bits", "onehot", "bits", true, small, square)
	add("whole numbers up to 63", "whole", "whole", true, small, square)
	add("Inf and NaN in A", "special", "signed", false, small, square)
	return cases
}

// mix is a bijection of 32 bits.
func mix(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	return x ^ x>>16
}

// scaled are the kinds of random elements in [-1, 1) times a power of two. Its exponent is least and a random number below n, of each
// element, row or column.
var scaled = map[string]struct {
	of    int // 0 for an element, 1 for its row, 2 for its column
	n     uint32
	least int
}{
	"signed": {0, 1, 0}, "spread": {0, 121, -60}, "rows": {1, 125, -62}, "columns": {2, 125, -62}, "far rows": {1, 241, -120}, "sizes": {0, 221, -120},
	"tiny": {0, 1, -130}, "huge": {0, 1, 110}, "small": {0, 1, -70}, "greatest": {0, 1, 127}, "least": {0, 1, -9},
}

// element returns an element of a matrix of a kind: that in row r, of rows, and column c. i is its index in the matrix, and
// seed tells matrices apart.
func element(kind string, seed, i uint32, r, c, rows int64) float32 {
	h := mix(i + mix(seed))
	g := mix(h + 0x9e3779b9)
	signed := float32(h>>8)*0x1p-23 - 1
	one := func(is bool) float32 {
		if is {
			return 1
		}
		return 0
	}
	if s, ok := scaled[kind]; ok {
		random := [...]uint32{g, mix(uint32(r)), mix(uint32(c))}[s.of]
		return float32(math.Ldexp(float64(signed), s.least+int(random%s.n)))
	}
	switch kind {
	case "positive":
		return float32(h>>8) * 0x1p-24
	case "denormal":
		return math.Float32frombits(h & 0x807fffff)
	case "mixed":
		if g%16 == 0 {
			return math.Float32frombits(h & 0x807fffff)
		}
		return signed
	case "bits":
		return math.Float32frombits(h&0x807fffff | g%254<<23)
	case "identity":
		return one(r == c)
	case "permutation":
		return one((r*5+3)%rows == c) // rows is no multiple of 5
	case "onehot":
		return one(c == int64(mix(uint32(r)))%rows)
	case "whole":
		return float32(int(h>>8%127) - 63)
	case "nan":
		return math.Float32frombits(h | 0x7f800001)
	case "special":
		switch g % 997 {
		case 0:
			return math.Float32frombits(h | 0x7f800001)
		case 1:
			return math.Float32frombits(h&0x80000000 | 0x7f800000)
		}
		return signed
	}
	return float32(math.NaN())
}

// matrix returns rows x cols elements of a kind.
func matrix(kind string, seed uint32, rows, cols int64) []float32 {
	x := make([]float32, rows*cols)
	each(len(x), func(i int) { x[i] = element(kind, seed, uint32(i), int64(i)/cols, int64(i)%cols, rows) })
	return x
}

// matrices returns the operands.
func (p Product) matrices() (a, b []float32) {
	return matrix(p.A, 1, p.M, p.K), matrix(p.B, 2, p.K, p.N)
}

// Errors is how far the elements of a result are off.
type Errors struct {
	// Largest and Mean are in units of 2^-24 of the sum of |terms|, or of the least denormal number where that is more.
	Largest, Mean float64
	// Wrong counts the elements that are finite where float64 is not, or the other way round, or another infinity. In an exact
	// case it counts those that differ, too.
	Wrong int
	n     int // elements in Mean
}

// errors compares results with float64 sums in the order of the terms.
func (p Product) errors(a, b []float32, results ...[]float32) []Errors {
	errors := make([]Errors, len(results))
	var mu sync.Mutex
	kernels.Parallel(p.M, 1, func(lo, hi int64) {
		sum, abs, mine := make([]float64, p.N), make([]float64, p.N), make([]Errors, len(results))
		for i := lo; i < hi; i++ {
			clear(sum)
			clear(abs)
			for l := range p.K {
				x, row := float64(a[i*p.K+l]), b[l*p.N:][:p.N]
				for j, y := range row {
					term := x * float64(y)
					sum[j] += term
					abs[j] += math.Abs(term)
				}
			}
			for r, result := range results {
				p.addRow(&mine[r], sum, abs, result[i*p.N:][:p.N])
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for r, e := range mine {
			all := &errors[r]
			all.Largest, all.Mean, all.Wrong, all.n = max(all.Largest, e.Largest), all.Mean+e.Mean, all.Wrong+e.Wrong, all.n+e.n
		}
	})
	for r := range errors {
		errors[r].Mean /= float64(max(errors[r].n, 1))
	}
	return errors
}

// addRow compares a row. It adds the errors of its elements to Mean.
func (p Product) addRow(e *Errors, sum, abs []float64, got []float32) {
	for j, want := range sum {
		g, rounded := float64(got[j]), float32(want)
		switch infinite := math.IsInf(float64(rounded), 0); {
		case !p.Exact && infinite && abs[j] < math.MaxFloat32*2 && !math.IsInf(want, 0): // within rounding of overflow
		case p.Exact || infinite || want != want || g-g != 0:
			if got[j] != rounded && (g == g || want == want) {
				e.Wrong++
			}
		default:
			off := math.Abs(g-want) / max(0x1p-24*abs[j], 0x1p-149)
			e.Largest = max(e.Largest, off)
			e.Mean += off
			e.n++
		}
	}
}
