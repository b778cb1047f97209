package bench

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// productRow is a product with the times of its candidates in us. FormA and FormB are the forms of operands that are prepared, C is that of a result in 16
// bits. The epilogue adds a row, if Bias is set, and a matrix of the type Add.
type productRow struct {
	Dtype, Round    string
	Batch, M, N, K  int64
	TransA, TransB  bool
	FormA, FormB, C string             `json:",omitempty"`
	Bias            bool               `json:",omitempty"`
	Add             string             `json:",omitempty"`
	Was             string             `json:",omitempty"` // the candidate that programs had
	Us              map[string]float64 `json:",omitempty"`
}

// named returns the value of a list with a name, the first one for none.
func named[T interface{ String() string }](t *testing.T, name string, list ...T) T {
	i := slices.IndexFunc(list, func(x T) bool { return x.String() == name })
	if name == "" {
		i = 0
	}
	if i < 0 {
		t.Fatalf("got %q, want one of %v", name, list)
	}
	return list[i]
}

// product returns a row's product on a device; ok is false if it cannot have its result or the epilogue's operand in 16 bits.
func (s productRow) product(t *testing.T, dev kernels.Device) (p gemm.Product, ok bool) {
	form := func(name string) gemm.Form {
		return named(t, name, gemm.Plain, gemm.TF32, gemm.BF16, gemm.F16, gemm.BF16Split)
	}
	p = gemm.Product{Dtype: named(t, s.Dtype, f32, f64), Batch: s.Batch, M: s.M, N: s.N, K: s.K, A: gemm.Operand{Trans: s.TransA, Form: form(s.FormA)},
		B: gemm.Operand{Trans: s.TransB, Form: form(s.FormB)}, Round: named(t, s.Round, kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.F16)}
	text, names, types, views := "c", []string{"c"}, []kernels.Dtype(nil), []codegen.View(nil)
	add := func(dt kernels.Dtype, elements int64, strides ...int) {
		name := string(rune('x' + len(types)))
		text, names, types = text+" + "+name, append(names, name), append(types, dt)
		views = append(views, codegen.View{Elements: elements, Strides: strides})
	}
	if s.Bias {
		add(p.Dtype, p.N, 0, 0, 1)
	}
	if s.Add != "" {
		add(named(t, s.Add, expr.Float32, expr.Float64, expr.BF16, expr.F16), p.Batch*p.M*p.N, int(p.M*p.N), int(p.N), 1)
	}
	if len(types) > 0 {
		if p, ok = p.With(testutil.Get[expr.Func](t)(expr.Parse(text, p.Dtype, names...)), views...); !ok {
			return p, false
		}
	}
	if p.Dtype != f32 {
		return p, true
	}
	c := f32
	if half, ok := p.Round.Half(); ok && s.C != "" {
		c = half
	}
	return p.Stored(c, types, dev)
}

// The times of the candidates of products, as lines of JSON in products.json of the folder STHENO_RECORD: of those predicted to take up to 1.8 times
// the least time. STHENO_SWEEP_PRODUCTS has the number of drawn products, their seed, for how many seconds, and files of [productRow], whose products come
// first: "150 7 50 programs.jsonl".
func TestSweepProducts(t *testing.T) {
	fields := strings.Fields(os.Getenv("STHENO_SWEEP_PRODUCTS"))
	if len(fields) < 3 {
		t.Skip("SKIPPED, NOT TIMED: STHENO_SWEEP_PRODUCTS is not set")
	}
	var numbers [3]int
	for i := range numbers {
		numbers[i] = testutil.Get[int](t)(strconv.Atoi(fields[i]))
	}
	var cases []productRow
	for _, file := range fields[3:] {
		in := json.NewDecoder(testutil.Get[*os.File](t)(os.Open(file)))
		for {
			var row productRow
			err := in.Decode(&row)
			if errors.Is(err, io.EOF) {
				break
			}
			testutil.Do(t, err)
			cases = append(cases, row)
		}
	}
	r := rand.New(rand.NewPCG(uint64(numbers[1]), 35))
	for range numbers[0] {
		cases = append(cases, drawProduct(r))
	}
	g := sweepGPU(t, r)
	defer g.Close()
	testutil.Do(t, json.NewEncoder(os.Stdout).Encode(g.Device()))
	done := sweep(t, g, "products.json", numbers[2], cases, func(s productRow) (names []string, plans []*kernels.Plan) {
		const most = 1.8
		p, ok := s.product(t, g.Device())
		if !ok {
			t.Logf("%+v: not in 16 bits", s)
			return nil, nil
		}
		names, us, plans, err := gemm.Candidates(p, g.Device())
		testutil.Do(t, err)
		least := math.Inf(1)
		for _, us := range us {
			if us > 0 { // else there is no prediction
				least = min(least, us)
			}
		}
		kept := 0
		for i, name := range names {
			if i == 0 || us[i] <= most*least || name == s.Was {
				names[kept], plans[kept] = name, plans[i]
				kept++
			}
		}
		return names[:kept], plans[:kept]
	}, func(s productRow, us map[string]float64) []any {
		s.Us = maps.Clone(us)
		return []any{s}
	})
	t.Logf("%d of %d products", done, len(cases))
}

// drawProduct draws a product of operands of up to 1 GB and 2^35 multiply-adds.
func drawProduct(r *rand.Rand) productRow {
	for {
		size := func(low, high float64) int64 { return logUniform(r, low, high) }
		s := productRow{Dtype: "f32", Batch: 1, TransA: r.IntN(2) == 0, TransB: r.IntN(2) == 0, Round: "float32"}
		switch n := r.IntN(20); {
		case n < 3:
			s.Dtype = "f64"
		case n < 7:
			s.Round = "TF32"
		case n < 12:
			s.Round = "BF16"
		case n < 14:
			s.Round = "F16"
		}
		layer := false
		switch r.IntN(9) {
		case 0:
			s.M, s.N, s.K = size(16, 8192), size(16, 8192), size(16, 8192)
		case 1: // few rows
			s.M, s.N, s.K = size(2, 192), size(256, 12000), size(64, 12000)
		case 2: // a vector
			s.M, s.N, s.K = 1, size(16, 30000), size(16, 30000)
		case 3:
			if s.Batch, s.M, s.N, s.K = size(2, 1000), size(4, 600), size(4, 600), size(4, 600); r.IntN(2) == 0 {
				s.M, s.N, s.K = size(65, 300), size(65, 300), size(65, 300)
			}
		case 4: // near a cube
			n := float64(size(64, 2500))
			s.M, s.N, s.K = size(n/1.5, n*1.5), size(n/1.5, n*1.5), size(n/1.5, n*1.5)
		case 5: // few terms
			s.M, s.N, s.K = size(64, 16000), size(64, 16000), size(1, 64)
		default: // a layer of a network, by results or by gradients
			layer = true
			s.M, s.N, s.K = size(128, 16384), size(8, 512)*8, size(8, 512)*8
			switch r.IntN(3) {
			case 0:
				s.M, s.K = s.K, s.M
			case 1:
				s.Batch, s.M = size(2, 64), size(32, 1024)
			}
		}
		if r.IntN(2) == 0 {
			s.M, s.N = s.N, s.M
		}
		if most := int64(1) << 34; s.Batch*(s.M*s.K+s.K*s.N+s.M*s.N) > 1<<28 || s.Batch*s.M*s.N*s.K > most || s.Dtype == "f64" && s.Batch*s.M*s.N*s.K > most/4 {
			continue
		}
		if s.Round != "float32" && (layer || r.IntN(2) == 0) && r.IntN(6) > 0 {
			s.FormA, s.FormB = s.Round, s.Round
		} else if layer && s.Round == "float32" && s.Dtype == "f32" && r.IntN(2) == 0 {
			if s.FormA = "planes"; r.IntN(2) == 0 {
				s.FormB = "planes"
			}
		}
		if s.FormB != "" && s.Round != "float32" && s.Round != "TF32" && s.N%8 == 0 && r.IntN(3) > 0 {
			s.C = s.Round
		}
		if layer {
			s.Bias = r.IntN(3) == 0
			if r.IntN(4) == 0 {
				if s.Add = s.Dtype; s.C != "" && r.IntN(2) == 0 {
					s.Add = strings.ToLower(s.Round)
				}
			}
		}
		return s
	}
}
