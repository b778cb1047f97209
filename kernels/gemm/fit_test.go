package gemm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
)

// sweptProduct is a line of a sweep of products: see productRow of cudaops/bench.
type sweptProduct struct {
	Dtype, Round    string
	Batch, M, N, K  int64
	TransA, TransB  bool
	FormA, FormB, C string
	Bias            bool
	Add, Was        string
	Us              map[string]float64 // by candidate
	dev             *kernels.Device    // that timed it
}

func (s sweptProduct) problem() problem { return s.product().problem(*s.dev) }

// product returns the product of a line. Its epilogue has steps and operands, but no function: it has a choice and no plan.
func (s sweptProduct) product() Product {
	form := func(name string) Form {
		for f := range BF16Split + 1 {
			if f.String() == name {
				return f
			}
		}
		return Plain
	}
	p := Product{Dtype: kernels.Float32, Batch: s.Batch, M: s.M, N: s.N, K: s.K, A: Operand{Trans: s.TransA, Form: form(s.FormA)}, B: Operand{Trans: s.TransB, Form: form(s.FormB)},
		Round: kernels.Precision(form(s.Round)), C: form(s.C)}
	if s.Dtype == kernels.Float64.String() {
		p.Dtype = kernels.Float64
	}
	add := func(dt kernels.Dtype, strides ...int) {
		p.epilogue.chain = p.epilogue.chain<<4 | 1
		p.epilogue.slots = append(p.epilogue.slots, len(p.epilogue.operands))
		p.epilogue.operands = append(p.epilogue.operands, codegen.View{Strides: strides})
		p.epilogue.types = append(p.epilogue.types, dt)
	}
	if s.Bias {
		add(p.Dtype, 0, 0, 1)
	}
	if s.Add != "" {
		dt := p.Dtype
		if half, ok := p.Round.Half(); ok && s.Add == half.String() {
			dt = half
		}
		add(dt, int(s.M*s.N), int(s.N), 1)
	}
	return p
}

// key identifies a product.
func (s sweptProduct) key() string {
	s.Was, s.Us, s.dev = "", nil, nil
	return fmt.Sprintf("%+v", s)
}

// readSweep reads sweeps of TestSweepProducts: of each a device and lines of products. Times of a product that was swept twice are their means.
func readSweep(t testing.TB, files ...string) (list []sweptProduct) {
	for _, file := range files {
		in := json.NewDecoder(bytes.NewReader(testutil.Read(t, file)))
		dev := new(kernels.Device)
		testutil.Do(t, in.Decode(dev))
		at := map[string]int{}
		for in.More() {
			s := sweptProduct{dev: dev}
			testutil.Do(t, in.Decode(&s))
			if len(s.Us) == 0 {
				continue
			}
			if i, twice := at[s.key()]; twice {
				for name, us := range s.Us {
					if old, ok := list[i].Us[name]; ok {
						us = math.Sqrt(us * old)
					}
					list[i].Us[name] = us
				}
				continue
			}
			at[s.key()] = len(list)
			list = append(list, s)
		}
	}
	return list
}

// fitted is a timed option with its predicted time.
type fitted struct {
	option
	us, predicted float64
	alone         float64 // predicted without an epilogue, by which products are chosen that don't store 16 bits
	product       int
}

// fit holds the options of a sweep by kernel, and by product.
type fit struct {
	options  []fitted
	byKernel map[string][]int
	products [][]int
	best     []float64
	rates    map[string]*rates
	first    map[string]rates // where constants begin
	held     []bool           // out of the fit
	names    []string         // of products
	was      []float64        // times of the candidates that programs had, 0 of other products
}

func (f *fit) predict(kernel string) {
	r := f.rates[kernel]
	for _, i := range f.byKernel[kernel] {
		o := &f.options[i]
		p := r.of(o.candidate, &o.as, true)
		o.predicted = p.time(&o.cut)
		if o.alone = o.predicted; o.as.HasEpilogue() && !o.as.halves() {
			p = r.of(o.candidate, &o.as, false)
			o.alone = p.time(&o.cut)
		}
	}
}

// loss is the mean error of a kernel's times, that of times near a product's best counts most.
func (f *fit) loss(kernel string, first *rates) float64 {
	f.predict(kernel)
	var sum, weights float64
	for _, i := range f.byKernel[kernel] {
		o := &f.options[i]
		if f.held[o.product] {
			continue
		}
		w := math.Pow(f.best[o.product]/o.us, 2)
		e := math.Abs(math.Log(o.predicted / o.us))
		if e > 0.1 {
			e = 0.1 + (e-0.1)*0.7
		}
		sum, weights = sum+w*e*math.Min(1, e*10), weights+w
	}
	return sum/max(weights, 1e-9) + f.far(kernel, first)
}

// far is what constants cost that are far from where they began: those that few times depend on stay near.
func (f *fit) far(kernel string, from *rates) (sum float64) {
	first := from.fields()
	for i, x := range f.rates[kernel].fields() {
		d := math.Log(*x / *first[i])
		sum += d * d
	}
	return sum * 0.1 / float64(20+len(f.byKernel[kernel]))
}

// regret is the mean over products of how much longer the choice takes than the best, where choices are drawn by predicted times.
func (f *fit) regret(p int, sharp float64) float64 {
	least := math.Inf(1)
	for _, i := range f.products[p] {
		least = min(least, f.options[i].alone)
	}
	var sum, weights float64
	for _, i := range f.products[p] {
		w := math.Pow(least/f.options[i].alone, sharp)
		sum, weights = sum+w*math.Log(f.options[i].us/f.best[p]), weights+w
	}
	e := sum / weights
	if f.was[p] > 0 { // not to be slower than before
		return 2*e + 12*max(e-max(math.Log(f.was[p]/f.best[p]), 0.01), 0)
	}
	return e + 2*max(e-0.1, 0)
}

// chosen is the ratio of the choice's time to the best.
func (f *fit) chosen(p int) (ratio float64, o *fitted) {
	for _, i := range f.products[p] {
		if o == nil || f.options[i].alone < o.alone {
			o = &f.options[i]
		}
	}
	return o.us / f.best[p], o
}

func (r *rates) fields() (list []*float64) {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		list = append(list, v.Field(i).Addr().Interface().(*float64))
	}
	return list
}

// descend improves constants by steps of one at a time, in turn larger and smaller, that shrink; value is what to make small.
func descend(at []*float64, step, end float64, value func() float64) float64 {
	least := value()
	for ; step > end; step *= 0.7 {
		for _, x := range at {
			for _, by := range []float64{math.Exp(step), math.Exp(-step)} {
				for range 4 {
					old := *x
					*x = old * by
					if got := value(); got < least {
						least = got
						continue
					}
					*x = old
					break
				}
			}
		}
	}
	return least
}

// fitTimes fits each kernel's rates to its times, from the present rates and several other starts, or from the present rates alone.
func (f *fit) fitTimes(t *testing.T, kernelsOf []string, refine bool) {
	var group sync.WaitGroup
	var mu sync.Mutex
	for _, k := range kernelsOf {
		group.Go(func() {
			tile, r := f.options[f.byKernel[k][0]].candidate.tile, f.rates[k]
			start := rates{Start: 2.5, Block: 0.7, Step: 10, Alone: 12, Resident: 2, Bytes: 1.2, Reread: 0.02, Second: 2.5, Copied: 0.4, Join: 0.5, Prepare: 1, TN: 1, NT: 1, TT: 1, TransC: 1,
				Strayed: 1.05, StrayedAlone: 1, StrayedBytes: 1, Stream: 3, Finish: 0.3, Load: 0.2}
			if start.Step, start.Alone = 0.01, 0.02; tile.m > 0 && tile.n > 0 && tile.m < 1024 {
				start.Step, start.Alone = 10*float64(tile.m*tile.n)/4096, 12*float64(tile.m*tile.n)/4096
			}
			starts := []rates{}
			before, ok := measured[k]
			if ok {
				starts = append(starts, before)
			}
			if !refine || !ok {
				for _, resident := range []float64{1, 2, 4, 8} { // descents end in different places
					for _, alone := range []float64{1, 4, 20} {
						begin := start
						begin.Resident, begin.Alone = resident, start.Alone*alone
						starts = append(starts, begin)
					}
				}
			}
			set := func(begin rates) {
				mu.Lock()
				f.first[k] = begin
				mu.Unlock()
				*r = begin
			}
			var best, first rates
			got := math.Inf(1)
			for _, begin := range starts {
				set(begin)
				if now := descend(r.fields(), 1, 0.15, func() float64 { return f.loss(k, &begin) }); now < got {
					got, best, first = now, *r, begin
				}
			}
			set(first)
			*r = best
			got = descend(r.fields(), 0.4, 0.02, func() float64 { return f.loss(k, &first) })
			t.Logf("%-22s %5d times, error %.3f, %+.3v", k, len(f.byKernel[k]), got, *r)
		})
	}
	group.Wait()
}

// Fits the constants of the model to sweeps, files of [sweptProduct] named by STHENO_FIT, packed (.gz) or not, whose first line is a [kernels.Device], and writes rates.go to
// STHENO_FIT_TO. Products of the record of choices are held out of the fit; the ratios of times chosen to the least are printed for both parts. It takes minutes;
// with STHENO_FIT_REFINE it begins with the present rates alone. STHENO_FIT_ONLY, a regular expression, names the kernels that are fitted: others keep their rates, or have none; without it those are fitted that have rates.
func TestFit(t *testing.T) {
	files, only := strings.Fields(os.Getenv("STHENO_FIT")), testutil.Get[*regexp.Regexp](t)(regexp.Compile(os.Getenv("STHENO_FIT_ONLY")))
	if len(files) == 0 {
		t.Skip("SKIPPED, NOT FITTED: STHENO_FIT is not set")
	}
	f := &fit{byKernel: map[string][]int{}, rates: map[string]*rates{}, first: map[string]rates{}}
	held := map[string]bool{}
	for _, s := range readSweep(t, choicesRecord...) {
		held[s.key()] = true
	}
	for _, s := range readSweep(t, files...) {
		x := s.problem()
		best := slices.Min(slices.Collect(maps.Values(s.Us)))
		product := len(f.products)
		var list []int
		seen := map[string]bool{}
		for _, o := range x.options() {
			name := o.String()
			us, ok := s.Us[name]
			if !ok || seen[name] {
				continue
			}
			seen[name] = true
			kernel := o.rateName(0)
			if o.candidate.rates[1] != nil && o.parts > 1 {
				kernel = o.rateName(1)
			}
			if _, ok := measured[kernel]; !ok && (only.String() == "" || !only.MatchString(kernel)) {
				continue // its limits decide
			}
			f.byKernel[kernel] = append(f.byKernel[kernel], len(f.options))
			list = append(list, len(f.options))
			f.options = append(f.options, fitted{option: o, us: us, product: product})
		}
		if len(list) == 0 {
			continue
		}
		f.products, f.best, f.held = append(f.products, list), append(f.best, best), append(f.held, held[s.key()])
		f.was, f.names = append(f.was, s.Us[s.Was]), append(f.names, s.key())
	}
	report := func(name string, ratios []float64) {
		slices.Sort(ratios)
		n := len(ratios)
		if n > 0 {
			t.Logf("%s: %d products, median %.3f, 90 %% %.3f, 95 %% %.3f, 99 %% %.3f, worst %.2f", name, n, ratios[n/2], ratios[n*90/100], ratios[n*95/100], ratios[n*99/100], ratios[n-1])
		}
	}
	var kernelsOf []string
	refine := os.Getenv("STHENO_FIT_REFINE") != ""
	for _, k := range slices.Sorted(maps.Keys(f.byKernel)) {
		f.rates[k] = new(rates)
		if before, ok := measured[k]; ok && !only.MatchString(k) {
			*f.rates[k] = before
			f.predict(k)
			continue
		}
		kernelsOf = append(kernelsOf, k)
	}
	f.fitTimes(t, kernelsOf, refine)
	// A time far beyond the predicted one and the best was disturbed, or is that of a single launch.
	for p, list := range f.products {
		f.products[p] = slices.DeleteFunc(list, func(i int) bool {
			o := &f.options[i]
			disturbed := o.us > 2.5*o.predicted && o.us > 2*f.best[p] && o.us > 15
			if disturbed {
				t.Logf("disturbed: %s, %v: %.1f us, predicted %.1f", f.names[p], o.option, o.us, o.predicted)
			}
			return disturbed
		})
	}
	ratios := func(name string) {
		var in, out []float64
		for p := range f.products {
			ratio, _ := f.chosen(p)
			if f.held[p] {
				out = append(out, ratio)
			} else {
				in = append(in, ratio)
			}
		}
		report(name+" fitted", in)
		report(name+" held out", out)
	}
	ratios("times")
	// Then all constants by what the choices lose.
	rounds := []struct{ sharp, step float64 }{{15, 0.2}, {40, 0.1}, {60, 0.1}}
	if refine {
		rounds = rounds[1:]
	}
	for _, round := range rounds {
		for _, k := range kernelsOf {
			touched := map[int]bool{}
			for _, i := range f.byKernel[k] {
				if !f.held[f.options[i].product] {
					touched[f.options[i].product] = true
				}
			}
			products := slices.Sorted(maps.Keys(touched))
			first := f.first[k]
			descend(f.rates[k].fields(), round.step, round.step*0.4, func() float64 {
				f.predict(k)
				var sum float64
				for _, p := range products {
					sum += f.regret(p, round.sharp)
				}
				return sum + 0.05*float64(len(products))*f.loss(k, &first)
			})
			f.predict(k)
		}
		ratios(fmt.Sprint("choices ", round.sharp))
	}
	slower := 0
	for p := range f.products {
		if _, o := f.chosen(p); f.was[p] > 0 && o.us > 1.02*f.was[p] {
			slower++
			t.Logf("%.3f slower: %+v %d x (%d x %d x %d): %v %.2f (predicted %.2f), was %.2f", o.us/f.was[p], f.names[p], o.as.Batch, o.as.M, o.as.K, o.as.N, o.option, o.us, o.predicted, f.was[p])
		}
	}
	t.Logf("%d products of programs are slower", slower)
	for p := range f.products {
		if ratio, o := f.chosen(p); ratio > 1.25 {
			var best *fitted
			for _, i := range f.products[p] {
				if best == nil || f.options[i].us < best.us {
					best = &f.options[i]
				}
			}
			x := o.as
			t.Logf("%.2f held %v: %v %d x (%d x %d x %d) %v: %v %.1f (predicted %.1f), best %v %.1f (predicted %.1f)", ratio, f.held[p], f.names[p], x.Batch, x.M, x.K, x.N, x.Dtype, o.option, o.us, o.predicted, best.option, best.us, best.predicted)
		}
	}
	if to := os.Getenv("STHENO_FIT_TO"); to != "" {
		var b bytes.Buffer
		fmt.Fprint(&b, "package gemm\n\n// measured are the rates of kernels on 9.0, fitted by TestFit, in the order of the fields, those of mma_ kernels with plans of 8.0, for predictions alone:\n//")
		for i := range reflect.TypeFor[rates]().NumField() {
			fmt.Fprint(&b, " ", reflect.TypeFor[rates]().Field(i).Name)
		}
		fmt.Fprint(&b, ".\nvar measured = map[string]rates{\n")
		for k, r := range measured {
			if f.rates[k] == nil && os.Getenv("STHENO_FIT_ONLY") != "" {
				f.rates[k] = &r
			}
		}
		for _, k := range slices.Sorted(maps.Keys(f.rates)) {
			fmt.Fprintf(&b, "%q: {", k)
			f.rates[k].Resident = max(math.Round(f.rates[k].Resident), 1)
			for _, x := range f.rates[k].fields() {
				fmt.Fprintf(&b, "%.4g, ", *x)
			}
			fmt.Fprintf(&b, "},\n")
		}
		b.WriteString("}\n")
		testutil.Do(t, os.WriteFile(to, testutil.Get[[]byte](t)(format.Source(b.Bytes())), 0o644))
	}
}
