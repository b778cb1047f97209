package notebook

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/kernels"
	"gonum.org/v1/gonum/stat"
)

// Target returns the device to make plans for: the GPU, or the host.
func (p *Page) Target() kernels.Device {
	if p.gpu != nil {
		return p.gpu.Device
	}
	return kernels.HostDevice()
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
func (p *Page) Run(key string, plan *kernels.Plan, inputs [][]byte, runs int) (ran Ran, err error) {
	var spread float64
	var timed int
	ran.Mean, err = p.Measure(key+", mean", "us", func() (float64, error) {
		timing, err := bench.TimeWithin(p.gpu.Ordinal, plan, inputs, runs, time.Minute)
		if err != nil {
			return 0, err
		}
		ran.Out, timed = timing.Out, len(timing.Runs)
		mean, deviation := Moments(timing.Runs)
		spread = deviation
		return mean, nil
	})
	if err != nil {
		return Ran{}, err
	}
	ran.Spread, err = p.Measure(key+", spread", "us", func() (float64, error) { return spread, nil })
	if err != nil {
		return ran, err
	}
	ran.Runs, err = p.Measure(key+", runs", "", func() (float64, error) { return float64(timed), nil })
	if err != nil || p.gpu != nil {
		return ran, err
	}
	ran.Out, err = p.Output(plan, inputs)
	if err != nil {
		return Ran{}, fmt.Errorf("%s: %w", key, err)
	}
	return ran, nil
}

// Output runs a plan for [Page.Target] once, on the GPU or by the Go bodies.
func (p *Page) Output(plan *kernels.Plan, inputs [][]byte) ([]byte, error) {
	out := aligned(plan.Out)
	if p.gpu != nil {
		return out, bench.Run(p.gpu.Ordinal, plan, inputs, out)
	}
	return out, plan.Run(inputs, out, nil)
}

// aligned returns memory for elements of any type.
func aligned(bytes int64) []byte { return kernels.Bytes(make([]float64, (bytes+7)/8))[:bytes] }

// MeanTime returns the mean time of a plan on the GPU in us, for [Page.Measure].
func (p *Page) MeanTime(plan *kernels.Plan, inputs [][]byte, runs int) (float64, error) {
	if p.gpu == nil {
		return 0, cudaops.ErrNoDevice
	}
	timing, err := bench.Time(p.gpu.Ordinal, plan, inputs, runs)
	if err != nil {
		return 0, err
	}
	mean, _ := Moments(timing.Runs)
	return mean, nil
}

// EndToEnd returns the mean time in us, by the host's clock, of launching a plan on the GPU, whose
// memory holds the inputs, copying the output back, and calling finish with it. It is for
// [Page.Measure].
func (p *Page) EndToEnd(plan *kernels.Plan, inputs [][]byte, runs int, finish func(out []byte) error) (us float64, err error) {
	if p.gpu == nil {
		return 0, cudaops.ErrNoDevice
	}
	s, err := cudaops.Open(p.gpu.Ordinal)
	if err != nil {
		return 0, err
	}
	us, err = endToEnd(s, plan, inputs, runs, finish)
	return us, errors.Join(err, s.Close())
}

func endToEnd(s *cudaops.Session, plan *kernels.Plan, inputs [][]byte, runs int, finish func(out []byte) error) (float64, error) {
	if len(inputs) != len(plan.Inputs) {
		return 0, fmt.Errorf("%s: got %d inputs, want %d", plan.Op, len(inputs), len(plan.Inputs))
	}
	memory := map[kernels.Operand]*cudaops.Buffer{}
	take := func(o kernels.Operand, size int64) (err error) {
		memory[o], err = s.Alloc(max(size, 1))
		return err
	}
	for i, bytes := range inputs {
		if err := take(kernels.Operand(i), plan.Inputs[i]); err != nil {
			return 0, err
		}
		if err := s.CopyTo(memory[kernels.Operand(i)], bytes); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(take(kernels.Out, plan.Out), take(kernels.Scratch, plan.Scratch)); err != nil {
		return 0, err
	}
	args := make([][]any, len(plan.Launches))
	for i, l := range plan.Launches {
		for _, a := range l.Args {
			if ref, ok := a.(kernels.Ref); ok {
				if ref.Offset != 0 {
					return 0, fmt.Errorf("%s: got the argument %v, want the start of an operand", plan.Op, ref)
				}
				a = memory[ref.Operand]
			}
			args[i] = append(args[i], a)
		}
	}
	out, us := aligned(plan.Out), 0.0
	for run := range runs + 1 {
		start := time.Now()
		for i, l := range plan.Launches {
			launch := s.Launch
			if l.CoResident || l.Cooperative {
				launch = s.LaunchCooperative
			}
			if err := launch(l.Kernel, l.Grid, l.Block, l.Shared, args[i]...); err != nil {
				return 0, err
			}
		}
		if err := s.CopyFrom(out, memory[kernels.Out]); err != nil {
			return 0, err
		}
		if err := finish(out); err != nil {
			return 0, err
		}
		if run > 0 { // the first one loads the kernels
			us += float64(time.Since(start)) / 1e3 / float64(runs)
		}
	}
	return us, nil
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

// Moments returns the mean and the standard deviation of times, in us.
func Moments(times []time.Duration) (mean, spread float64) {
	return stat.PopMeanStdDev(micros(times), nil)
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
