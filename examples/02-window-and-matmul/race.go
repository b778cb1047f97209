package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Kernels that are timed like versions.
const (
	opBF16    = -1 // the op's kernel of operands in BF16
	opFloat32 = 0
	ceiling   = -2 // products of pieces that are there
)

// squares are operands of products of n x n matrices: random ones, in float32 and rounded.
type squares struct {
	n      int
	words  [2][]float32
	halves [2][]uint16
}

func newSquares(n int) *squares {
	s := &squares{n: n}
	for i := range s.words {
		s.words[i], s.halves[i] = random(n*n, uint64(11+i), false), make([]uint16, n*n)
		for k, v := range s.words[i] {
			s.halves[i][k] = uint16(math.Float32bits(kernels.BF16.Round(v)) >> 16)
		}
	}
	return s
}

// rounded reports whether a version takes operands in BF16.
func rounded(version int) bool {
	return version < 0 || version > versions.TiledMatMuls && version < len(versions.Docs("MatMul"))
}

func (s *squares) plan(dev kernels.Device, version int) (*kernels.Plan, error) {
	n := int64(s.n)
	switch {
	case version == opBF16:
		return gemm.Product{Dtype: kernels.Float32, Batch: 1, M: n, N: n, K: n, A: gemm.Operand{Form: gemm.BF16}, B: gemm.Operand{Form: gemm.BF16}, Round: kernels.BF16}.Plan(dev)
	case version == ceiling:
		return versions.WarpgroupCeiling(dev, n)
	case version == opFloat32:
		return square{version: version, n: s.n}.plan(dev, kernels.Float32)
	case rounded(version):
		return versions.WarpgroupMatMul(dev, version, n, kernels.BF16)
	}
	return versions.WarpgroupMatMul(dev, version, n, kernels.FullPrecision)
}

func (s *squares) operands(version int) (in [][]byte) {
	for i := range s.words {
		if rounded(version) {
			in = append(in, kernels.Bytes(s.halves[i]))
		} else {
			in = append(in, kernels.Bytes(s.words[i]))
		}
	}
	return in
}

// check compares a thousand elements with sums in float64 of the operands as a version takes them.
func (s *squares) check(version int, out []byte) error {
	terms, times := s.n, 1.0
	if version == ceiling {
		terms, times = 64, float64(s.n)/64
	}
	return checkElements[float32](fmt.Sprintf("%d x %d by version %d", s.n, s.n, version), out, s.n, 1000, terms, func(i, j, l int) float64 {
		a, b := s.words[0][i*s.n+l], s.words[1][l*s.n+j]
		if rounded(version) {
			a, b = kernels.BF16.Round(a), kernels.BF16.Round(b)
		}
		return times * float64(a) * float64(b)
	})
}

// racer times products, once each.
type racer struct {
	p       *notebook.Page
	squares map[int]*squares
	us      map[[2]int]float64 // by version and size
	cublas  map[string]float64 // us, or nil
}

// time times a version on n x n matrices.
func (r *racer) time(version, n int) {
	name := map[int]string{opFloat32: "the op", opBF16: "the op in BF16", ceiling: "ceiling"}[version]
	if version > 0 {
		name = fmt.Sprint("version ", version)
	}
	r.us[[2]int{version, n}] = r.p.Benchmark(fmt.Sprintf("warpgroups, %d, %s", n, name), benchmark(version, n, kernels.Float32), func() float64 {
		if r.squares[n] == nil {
			r.squares[n] = newSquares(n)
		}
		s := r.squares[n]
		return r.p.MeanTime(notebook.Must(s.plan(r.p.Target(), version)), s.operands(version), 9, func(out []byte) error { return s.check(version, out) })
	}).Value
}

// peer returns cuBLAS's time, which cublas.py measured, or the benchmarks for products of float32.
func (r *racer) peer(dtype string, n int) float64 {
	if r.p.GPU() != nil && r.cublas == nil {
		return math.NaN() // not measured
	}
	name, published := fmt.Sprintf("%s %d", dtype, n), notebook.Case{}
	if dtype == "float32" {
		published = benchmark(opFloat32, n, kernels.Float32)
		published.By = "cuBLAS"
	}
	return r.p.Benchmark("cuBLAS, "+name, published, func() float64 {
		us, ok := r.cublas[name]
		if !ok {
			notebook.Fail("-cublas: no line %s", name)
		}
		return us
	}).Value
}

// readPeers reads lines of a name and a time in us, as cublas.py prints them.
func readPeers(path string) (map[string]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	us := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, time, ok := strings.Cut(strings.TrimSpace(line), ",")
		if !ok {
			return nil, fmt.Errorf("-cublas %s: got the line %q, want a name and a time", path, line)
		}
		if us[name], err = strconv.ParseFloat(time, 64); err != nil {
			return nil, fmt.Errorf("-cublas %s: %w", path, err)
		}
	}
	return us, nil
}
