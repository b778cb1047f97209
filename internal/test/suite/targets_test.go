package suite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/window"
)

// limits are those of a compute capability, by the table of technical specifications in the appendix "Compute Capabilities" of NVIDIA's CUDA Programming
// Guide 13.0, with the SMs of GPUs that have it, and of a seventh of one as MIG divides it.
type limits struct {
	major, minor    int
	block, shared   int // KiB of shared memory of a block, and of an SM
	threads, blocks int // of an SM
	sms             []int
}

var targets = []limits{
	{7, 0, 96, 96, 2048, 32, []int{80, 72}}, {7, 5, 64, 64, 1024, 16, []int{40, 68, 14}},
	{8, 0, 163, 164, 2048, 32, []int{108, 124, 14}}, {8, 6, 99, 100, 1536, 16, []int{84, 28, 10}}, {8, 9, 99, 100, 1536, 24, []int{142, 128, 58, 20}},
	{9, 0, 227, 228, 2048, 32, []int{132, 114, 78, 16}},
	{10, 0, 227, 228, 2048, 32, []int{148, 18}}, {10, 3, 227, 228, 2048, 32, []int{160}}, {12, 0, 99, 100, 1536, 24, []int{170, 84, 36}}, {12, 1, 99, 100, 1536, 24, []int{48}},
}

// devices returns a device of the capability for each number of SMs.
func (l limits) devices() (list []kernels.Device) {
	for _, sms := range l.sms {
		list = append(list, kernels.Device{Name: fmt.Sprintf("%d.%d with %d SMs", l.major, l.minor, sms), Major: l.major, Minor: l.minor, SMs: sms, SharedOptin: l.block << 10,
			L2: int64(sms) << 18, Memory: int64(sms) << 29, Cooperative: true, Bandwidth: 2e10 * float64(sms), FMAs: 2e11 * float64(sms)})
	}
	return list
}

// targetChecker checks launches against the limits of a capability and what the assembler reports of the kernels that it runs.
type targetChecker struct {
	limits
	assembled map[string]map[string]manifest.Kernel // by image and entry point
	generated int                                   // launches of kernels that no manifest has
	checked   map[string]bool                       // entry points
}

// The signatures of entry points are those of all capabilities, and are read once.
var signatures struct {
	sync.Mutex
	kernels.Checker
}

func checkLaunch(p *kernels.Plan, l *kernels.Launch) error {
	signatures.Lock()
	defer signatures.Unlock()
	return signatures.CheckLaunch(p, l)
}

// imageBytes has functions that return the number of bytes of an image, by stem and target.
var imageBytes sync.Map

// check returns an error unless every launch of a plan fits.
func (c *targetChecker) check(p *kernels.Plan, dev kernels.Device) error {
	if err := p.Check(dev); err != nil {
		return err
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		if err := checkLaunch(p, l); err != nil {
			return fmt.Errorf("%s: %w", l.Kernel.Entry, err)
		}
		if err := c.resources(l, dev); err != nil {
			return fmt.Errorf("%s: %w", l.Kernel.Entry, err)
		}
	}
	return nil
}

// resources compares a launch with the registers and the shared memory of a block and, if its blocks wait for one another, of all SMs.
func (c *targetChecker) resources(l *kernels.Launch, dev kernels.Device) error {
	stem, own := strings.CutPrefix(l.Kernel.Image.Name(), "stheno/")
	source, compiled := c.assembled[stem]
	if !own || !compiled {
		c.generated++
		return nil
	}
	k, ok := source[l.Kernel.Entry]
	if !ok {
		return fmt.Errorf("the image for %d.%d does not have it", c.major, c.minor)
	}
	c.checked[l.Kernel.Entry] = true
	const file, unit = 64 << 10, 8 // registers of an SM and of a block; those of a thread are allocated in such units
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	warps := (threads + 31) / 32
	registers := (k.Registers + unit - 1) / unit * unit * 32 * warps
	shared := k.Shared + l.Shared
	switch {
	case registers > file:
		return fmt.Errorf("got %d threads of %d registers, %d in all, want at most %d", threads, k.Registers, registers, file)
	case shared > c.block<<10:
		return fmt.Errorf("got %d bytes of shared memory, %d of them static, want at most %d", shared, k.Shared, c.block<<10)
	case k.Shared > 48<<10:
		return fmt.Errorf("got %d bytes of static shared memory, want at most %d", k.Shared, 48<<10)
	}
	reserved := 0 // bytes of shared memory of each block
	if c.major >= 8 {
		reserved = 1 << 10
	}
	resident := min(c.threads/(32*warps), c.blocks, file/registers)
	if shared > 0 {
		resident = min(resident, c.shared<<10/(shared+reserved))
	}
	if blocks := l.Grid[0] * l.Grid[1] * l.Grid[2]; (l.CoResident || l.Cooperative) && blocks > resident*dev.SMs {
		return fmt.Errorf("got %d blocks that wait for one another, want at most %d on each of %d SMs", blocks, resident, dev.SMs)
	}
	return nil
}

// newTargetChecker reads the manifest's images that a capability runs, which must be in the program.
func newTargetChecker(t *testing.T, l limits) *targetChecker {
	c := &targetChecker{limits: l, assembled: map[string]map[string]manifest.Kernel{}, checked: map[string]bool{}}
	for _, s := range testutil.Get[*manifest.Manifest](t)(kernels.Builtin().Manifest()).Sources {
		target, _, err := kernels.Target(l.major, l.minor)
		testutil.Do(t, err)
		read, _ := imageBytes.LoadOrStore([2]string{s.Stem, target}, sync.OnceValues(func() (int, error) {
			code, err := kernels.Builtin().Image(s.Stem).Code(l.major, l.minor)
			return len(code.Text), err
		}))
		if bytes, err := read.(func() (int, error))(); err != nil || bytes == 0 {
			t.Errorf("%s.cu: got no code for %d.%d and %v, want an image", s.Stem, l.major, l.minor, err)
		}
		of := map[string]manifest.Kernel{}
		for _, i := range s.Images {
			if i.Target == target && !i.Omitted && !i.Tests {
				for _, k := range i.Kernels {
					of[k.Name] = k
				}
			}
		}
		c.assembled[s.Stem] = of // empty for an image that is omitted or for tests, whose kernels no plan may launch here
	}
	return c
}

// Every candidate of sums, products and convolutions, and every plan of windows and attention, of drawn shapes, and the plans of all cases of the ops on GPUs of little shared
// memory, fit each compute capability from 7.0 to 12.1: their threads, registers and shared memory, and the blocks that wait for one another.
func TestPlansFitEveryTarget(t *testing.T) {
	seed := testutil.Seed(t)
	for _, l := range targets {
		t.Run(fmt.Sprintf("%d.%d", l.major, l.minor), func(t *testing.T) {
			t.Parallel()
			r, c, plans := rand.New(rand.NewPCG(seed, uint64(10*l.major+l.minor))), newTargetChecker(t, l), 0
			for _, dev := range l.devices() {
				for range 20 {
					for name, drawn := range drawnPlans(t, r, dev) {
						for _, p := range drawn {
							plans++
							if err := c.check(p, dev); err != nil {
								t.Errorf("%s, %s on %s: %v", name, p.Op, dev.Name, err)
							}
						}
					}
				}
			}
			if l.block < 100 { // the plans of cases are alike on the others
				for _, p := range plansOf(t, l.devices()[:1]) {
					plans++
					if err := c.check(p, l.devices()[0]); err != nil {
						t.Errorf("%s on %d.%d: %v", p.Op, l.major, l.minor, err)
					}
				}
			}
			t.Logf("%d plans, %d entry points, %d launches of generated kernels", plans, len(c.checked), c.generated)
			if plans < 500 || len(c.checked) < 80 {
				t.Errorf("got %d plans with %d entry points, want at least 500 and 80", plans, len(c.checked))
			}
		})
	}
}

// drawnPlans returns plans of one drawn shape of each family.
func drawnPlans(t *testing.T, r *rand.Rand, dev kernels.Device) map[string][]*kernels.Plan {
	plans := map[string][]*kernels.Plan{}
	number := func(most float64) int64 { return int64(math.Exp(r.Float64() * math.Log(most))) }
	dt := []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)]

	outer, terms, inner := number(1e4), number(1e6), number(1e4)
	if r.IntN(2) == 0 {
		inner = 1
	}
	_, _, plans["sums"] = reduce.Candidates(dev, dt, outer, terms, inner)
	plans["sums"] = append(plans["sums"], reduce.Dot(dev, dt, outer, terms),
		reduce.Sum(dev, dt, []int{int(number(50)), int(number(100)), int(number(50)), int(number(100)), int(number(50))}, []int{r.IntN(2), 2 + r.IntN(3)}, false))

	batch := int64(1)
	if r.IntN(3) == 0 {
		batch = number(100)
	}
	p := gemm.Product{Dtype: dt, Batch: batch, M: number(5000), N: number(5000), K: number(5000), A: gemm.Operand{Trans: r.IntN(2) == 0}, B: gemm.Operand{Trans: r.IntN(2) == 0}}
	if dt == kernels.Float32 {
		p.Round = []kernels.Precision{kernels.FullPrecision, kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.F16}[r.IntN(5)]
	}
	_, _, products, err := gemm.Candidates(p, dev)
	testutil.Do(t, err)
	plans["products"] = append(products, testutil.Get[*kernels.Plan](t)(p.Plan(dev)))

	size := 1 + r.Int64N(5)
	axis := gemm.ConvAxis{In: size + number(60), Size: size, Stride: 1 + r.Int64N(2), Dilation: 1, Before: r.Int64N(min(size, 3)), After: r.Int64N(min(size, 3))}
	v := gemm.Conv{Dtype: dt, Images: number(200), Channels: number(500), Filters: number(500), Groups: 1, Rows: axis, Columns: axis, Result: gemm.ConvResult(r.IntN(3)), Round: p.Round}
	if r.IntN(4) == 0 {
		v.Groups, v.Filters = v.Channels, v.Channels
	}
	plans["convolutions"] = []*kernels.Plan{testutil.Get[*kernels.Plan](t)(v.Plan(dev))}
	for _, c := range testutil.Get[map[string]gemm.ConvCandidate](t)(gemm.ConvCandidates(v, dev)) {
		plans["convolutions"] = append(plans["convolutions"], c.Plan)
	}

	n := 1 + number(1e6)
	plans["windows"] = []*kernels.Plan{window.WindowSum(dev, dt, number(1000), n, min(number(1e5), (n-1)/2), window.WindowMode(r.IntN(2)))}
	w := window.WindowAxis{In: 1 + int(number(200)), Size: 1 + r.IntN(12), Stride: 1 + r.IntN(3), Dilation: 1}
	w.In = max(w.In, w.Size)
	square, planes, plan := window.Windows{Rows: w, Columns: w}, number(300), testutil.Get[*kernels.Plan](t)
	plans["windows"] = append(plans["windows"], plan(window.MaxPool(dev, dt, planes, square)), plan(window.MaxPoolDiff(dev, dt, planes, square)),
		plan(window.AveragePool(dev, dt, planes, square, 4)), plan(window.AveragePoolDiff(dev, dt, planes, square, 4)),
		plan(window.Im2Col(dev, dt, 1+planes/100, 3, square)), plan(window.Col2Im(dev, dt, 1+planes/100, 3, square)))

	heads := 1 + int64(r.IntN(4))
	a := attention.Problem{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64, expr.BF16, expr.F16}[r.IntN(4)], Batch: number(10), Heads: 2 * heads, KeyHeads: heads, Queries: number(3000), Keys: number(3000),
		Dim: []int64{1 + number(255), 64, 128}[r.IntN(3)], Scale: 0.125}
	if a.Dtype == kernels.Float32 && r.IntN(2) == 0 {
		a.Round = kernels.TF32
	}
	plans["attention"] = []*kernels.Plan{plan(attention.Forward{Problem: a, Out: true, Statistics: r.IntN(2) == 0}.Plan(dev)), plan(attention.Backward{Problem: a, Q: true, K: true, V: true}.Plan(dev))}
	return plans
}

// Launches beyond a limit are found: registers, shared memory beside what is static, blocks that wait for one another, and kernels that a target does not have.
func TestTargetCheckerFindsFaults(t *testing.T) {
	l := targets[2]
	c, dev, heavy := newTargetChecker(t, l), l.devices()[0], manifest.Kernel{}
	for _, k := range c.assembled["matmul"] {
		if k.Registers > heavy.Registers {
			heavy = k
		}
	}
	launch := func(entry string, blocks, threads, shared int) *kernels.Launch {
		return &kernels.Launch{Kernel: &kernels.Kernel{Image: kernels.Builtin().Image("matmul"), Entry: entry}, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Shared: shared, Cooperative: blocks > 1}
	}
	for want, l := range map[string]*kernels.Launch{
		"":                                launch(heavy.Name, 1, 128, 1<<10),
		"in all, want at most 65536":      launch(heavy.Name, 1, 1024, 0),
		"shared memory":                   launch(heavy.Name, 1, 128, l.block<<10-heavy.Shared+1),
		"that wait for one another":       launch(heavy.Name, 33*dev.SMs, 32, 0),
		"the image for 8.0 does not have": launch("nothing", 1, 128, 0),
	} {
		if err := c.resources(l, dev); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v of %d registers and %d bytes: got %v, want an error with %q", l, heavy.Registers, heavy.Shared, err, want)
		}
	}
}
