package notebook

import (
	"fmt"
	"math"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/kernels"
)

// Target is the device to make plans for: the GPU, or the host.
func (p *Page) Target() kernels.Device {
	if p.gpu != nil {
		return p.gpu.Device
	}
	return kernels.HostDevice()
}

// Ran is what [Page.Run] found out about a plan.
type Ran struct {
	// Mean and Spread, the standard deviation, of the GPU's times, in us.
	Mean, Spread Measured
	// Out is the plan's output where it ran: on the GPU or on the host.
	Out []byte
}

// Run runs a plan for [Page.Target]. On a GPU it times that many runs by the
// device's clock, operands in its memory. Without one it runs the Go bodies once
// for the output, and the times are the recorded ones of the key.
func (p *Page) Run(key string, plan *kernels.Plan, inputs [][]byte, runs int) (ran Ran, err error) {
	var spread float64
	ran.Mean, err = p.Measure(key+", mean", "us", func() (float64, error) {
		timing, err := cudaops.Time(p.gpu.Ordinal, plan, inputs, runs)
		if err != nil {
			return 0, err
		}
		ran.Out = timing.Out
		mean, deviation := Moments(timing.Runs)
		spread = deviation
		return mean, nil
	})
	if err != nil {
		return Ran{}, err
	}
	ran.Spread, err = p.Measure(key+", spread", "us", func() (float64, error) { return spread, nil })
	if err != nil || p.gpu != nil {
		return ran, err
	}
	ran.Out = kernels.Bytes(make([]float64, (plan.Out+7)/8))[:plan.Out]
	if err := plan.Run(inputs, ran.Out, nil); err != nil {
		return Ran{}, fmt.Errorf("%s: %w", key, err)
	}
	return ran, nil
}

// MeanTime is the mean time of a plan on the GPU in us, for [Page.Measure].
func (p *Page) MeanTime(plan *kernels.Plan, inputs [][]byte, runs int) (float64, error) {
	if p.gpu == nil {
		return 0, cudaops.ErrNoDevice
	}
	timing, err := cudaops.Time(p.gpu.Ordinal, plan, inputs, runs)
	if err != nil {
		return 0, err
	}
	mean, _ := Moments(timing.Runs)
	return mean, nil
}

// Micros is a time given in us, in us, ms or s.
func Micros(us float64) Measured {
	switch {
	case us >= 1e6:
		return Measured{us / 1e6, "s"}
	case us >= 1e3:
		return Measured{us / 1e3, "ms"}
	}
	return Measured{us, "us"}
}

// Moments are the mean and the standard deviation of times, in us.
func Moments(times []time.Duration) (mean, spread float64) {
	for _, t := range times {
		mean += float64(t) / 1e3 / float64(len(times))
	}
	for _, t := range times {
		d := float64(t)/1e3 - mean
		spread += d * d / float64(len(times))
	}
	return mean, math.Sqrt(spread)
}
