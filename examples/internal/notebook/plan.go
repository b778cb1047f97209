package notebook

import (
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gonum.org/v1/gonum/stat"
)

// Target returns the device to make plans for: the GPU, or the host.
func (p *Page) Target() kernels.Device {
	if p.gpu != nil {
		return p.gpu.Device
	}
	return kernels.HostDevice()
}

// Sum plans a version of the sum over all elements of float32 tensors, the op itself for version 0.
func (p *Page) Sum(version int, shape ...int) *kernels.Plan {
	if version > 0 {
		return Must(versions.Sum(p.Target(), kernels.Float32, version, shape))
	}
	axes := make([]int, len(shape))
	for i := range axes {
		axes[i] = i
	}
	return reduce.Sum(p.Target(), kernels.Float32, shape, axes, false)
}

// Ran is the result of [Page.Run].
type Ran struct {
	// Mean and Spread, the standard deviation, of the GPU's times, in us, and how
	// many times there are.
	Mean, Spread, Runs Measured
	// Out is the plan's output where it ran: on the GPU or on the host.
	Out []byte
}

// Run runs a plan for [Page.Target]. On a GPU it times that many runs by the device's clock,
// operands in its memory, each the mean over as many runs as take a millisecond; there are fewer
// only if they would take more than a minute. Without a GPU it runs the Go bodies once for the
// output, and the times are the recorded ones of the key.
func (p *Page) Run(key string, plan *kernels.Plan, inputs [][]byte, runs int) (ran Ran) {
	timing := new(bench.Timing)
	ran.Mean, ran.Spread = p.MeanAndSpread(key, func() []time.Duration {
		timing = Must(bench.TimeWithin(p.gpu.Ordinal, plan, inputs, runs, time.Minute))
		return timing.Runs
	})
	ran.Runs = p.Measure(key+", runs", "", func() float64 { return float64(len(timing.Runs)) })
	if ran.Out = timing.Out; p.gpu == nil {
		within(key, func() { ran.Out = p.Output(plan, inputs) })
	}
	return ran
}

// MeanAndSpread measures the mean of times on a GPU and their standard deviation, in us, under two
// keys as [Page.Measure] does.
func (p *Page) MeanAndSpread(key string, f func() []time.Duration) (mean, spread Measured) {
	var deviation float64
	mean = p.Measure(key+", mean", "us", func() (us float64) {
		us, deviation = stat.PopMeanStdDev(micros(f()), nil)
		return us
	})
	return mean, p.Measure(key+", spread", "us", func() float64 { return deviation })
}

// Output runs a plan for [Page.Target] once, on the GPU or by the Go bodies.
func (p *Page) Output(plan *kernels.Plan, inputs [][]byte) []byte {
	if p.gpu == nil {
		return OnHost(plan, inputs...)
	}
	out := aligned(plan.Out)
	Check(bench.Run(p.gpu.Ordinal, plan, inputs, out))
	return out
}

// OnHost runs a plan once by the Go bodies.
func OnHost(plan *kernels.Plan, inputs ...[]byte) []byte {
	out := aligned(plan.Out)
	Check(plan.Run(inputs, out, nil))
	return out
}

// aligned returns memory for elements of any type.
func aligned(bytes int64) []byte { return kernels.Bytes(make([]float64, (bytes+7)/8))[:bytes] }

// MeanTime returns the mean time of a plan on the GPU in us, for [Page.Measure]. A check of its
// output may be nil.
func (p *Page) MeanTime(plan *kernels.Plan, inputs [][]byte, runs int, check func(out []byte) error) float64 {
	timing := Must(bench.Time(p.gpu.Ordinal, plan, inputs, runs))
	if check != nil {
		Check(check(timing.Out))
	}
	return stat.Mean(micros(timing.Runs), nil)
}

// EndToEnd measures under a key, as [Page.Measure] does, the mean time by the host's clock of
// launching a plan on the GPU, whose memory holds the inputs, copying the output back, and calling
// finish with it.
func (p *Page) EndToEnd(key string, plan *kernels.Plan, inputs [][]byte, runs int, finish func(out []byte)) Measured {
	return p.Measure(key, "us", func() float64 {
		s := p.Session()
		defer s.Close()
		return endToEnd(s, plan, inputs, runs, finish)
	})
}

// Session opens the device of the page, the GPU or the host, to be used by hand.
func (p *Page) Session() *cudaops.Session {
	if p.gpu == nil {
		return cudaops.OpenHost()
	}
	return Must(cudaops.Open(p.gpu.Ordinal))
}

func endToEnd(s *cudaops.Session, plan *kernels.Plan, inputs [][]byte, runs int, finish func(out []byte)) (us float64) {
	if len(inputs) != len(plan.Inputs) {
		Fail("%s: got %d inputs, want %d", plan.Op, len(inputs), len(plan.Inputs))
	}
	memory := map[kernels.Operand]*cudaops.Buffer{kernels.Out: Must(s.Alloc(max(plan.Out, 1))), kernels.Scratch: Must(s.Alloc(max(plan.Scratch, 1)))}
	memory[kernels.Arrivals] = Must(s.Alloc(4))
	Check(s.CopyTo(memory[kernels.Arrivals], make([]byte, 4)))
	for i, bytes := range inputs {
		b := Must(s.Alloc(max(plan.Inputs[i], 1)))
		Check(s.CopyTo(b, bytes))
		memory[kernels.Operand(i)] = b
	}
	args := make([][]any, len(plan.Launches))
	for i, l := range plan.Launches {
		for _, a := range l.Args {
			if ref, ok := a.(kernels.Ref); ok {
				if ref.Offset != 0 {
					Fail("%s: got the argument %v, want the start of an operand", plan.Op, ref)
				}
				a = memory[ref.Operand]
			}
			args[i] = append(args[i], a)
		}
	}
	out := aligned(plan.Out)
	for run := range runs + 1 {
		start := time.Now()
		for i, l := range plan.Launches {
			launch := s.Launch
			if l.CoResident || l.Cooperative {
				launch = s.LaunchCooperative
			}
			Check(launch(l.Kernel, l.Grid, l.Block, l.Shared, args[i]...))
		}
		Check(s.CopyFrom(out, memory[kernels.Out]))
		if finish(out); run > 0 { // the first one loads the kernels
			us += float64(time.Since(start)) / 1e3 / float64(runs)
		}
	}
	return us
}

// Micros returns a time given in us in us, ms or s.
func Micros(us float64) Measured {
	switch {
	case us >= 1e6:
		return Measured{us / 1e6, "s"}
	case us >= 1e3:
		return Measured{us / 1e3, "ms"}
	}
	return Measured{us, "us"}
}

// AddUp returns the result in the output of a reduction: a float32, or the sum of partial sums in
// float64.
func AddUp(out []byte) (sum float64) {
	if len(out) == 4 {
		return float64(kernels.Elements[float32](out)[0])
	}
	for _, v := range kernels.Elements[float64](out) {
		sum += v
	}
	return sum
}

// Median returns the median of times, in us, or 0 if there are none.
func Median(times []time.Duration) float64 {
	if len(times) == 0 {
		return 0
	}
	us := micros(times)
	slices.Sort(us)
	return stat.Quantile(0.5, stat.Empirical, us, nil)
}

func micros(times []time.Duration) []float64 {
	us := make([]float64, len(times))
	for i, t := range times {
		us[i] = float64(t) / 1e3
	}
	return us
}
