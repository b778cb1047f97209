package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// Calibrate measures, within seconds, the numbers of a device that predictions of launch times read. It takes an eighth of the memory, 2 GiB at most.
//
// The error wraps cudaops.ErrNoDevice if there is no such device.
func Calibrate(device int) (kernels.Calibration, error) { return onGPU(device, "calibrate", calibrate) }

// calibrator times launches on an arena of random numbers in [-1, 1): operands in the first half, results and scratch memory in the second.
type calibrator struct {
	g    *exec.GPUBackend
	half int64
	rate float64 // of copies, bytes a us
}

// roundOf is the number of float32 that a block of the row kernel loads at a time: 64 bytes in each of 256 threads.
const roundOf = 256 * 64 / 4

// probes are the plans of a calibration.
type probes struct {
	memory, launch, loads, inL2, less, apart, together, product *kernels.Plan
}

const loads = 32 // more of probes.loads than of probes.launch

// newProbes returns the plans of a calibration of a device, with operands of at most this number of bytes.
func newProbes(dev kernels.Device, bytes int64) (p probes, err error) {
	sum := func(outer, r int64, name string) (found *kernels.Plan) {
		if err == nil {
			found, err = sumBy(dev, outer, r, name)
		}
		return found
	}
	const row, length = "row [256 1 0]", 1 << 14
	blocks := 2 * int64(dev.SMs)
	third := max(dev.L2/3/4/roundOf, 12) // rows that a third of L2 has room for
	p = probes{
		memory: sum(max(bytes/4/length, 1), length, row),
		launch: sum(1, roundOf, row), loads: sum(1, roundOf*(1+loads), row),
		inL2: sum(third, roundOf, row), less: sum(third/4, roundOf, row),
		apart: sum(blocks, roundOf, row), together: sum(1, blocks*roundOf, fmt.Sprintf("row-once [256 %d 0]", blocks)),
	}
	if err != nil {
		return p, err
	}
	n := int64(1 << 12)
	for 2*n*n*4 > bytes {
		n /= 2
	}
	dev.FMA = true
	p.product, err = gemm.Product{Dtype: kernels.Float32, Batch: 1, M: n, N: n, K: n}.Plan(dev)
	return p, err
}

// sumBy returns a candidate of a sum of outer x r float32 over r.
func sumBy(dev kernels.Device, outer, r int64, name string) (*kernels.Plan, error) {
	names, _, plans := reduce.Candidates(dev, kernels.Float32, outer, r, 1)
	if i := slices.Index(names, name); i >= 0 {
		return plans[i], nil
	}
	return nil, fmt.Errorf("got no candidate %s for a sum of %d x %d, want one of %s", name, outer, r, strings.Join(names, ", "))
}

func calibrate(g *exec.GPUBackend) (m kernels.Calibration, err error) {
	c := &calibrator{g: g}
	if err := c.fill(); err != nil {
		return m, err
	}
	dev := g.Device()
	dev.Calibration = kernels.Calibration{}
	p, err := newProbes(dev, c.half)
	if err != nil {
		return m, err
	}
	measure := func(p *kernels.Plan, apart bool) (us float64) {
		if err == nil {
			us, err = c.time(p, apart)
		}
		return us
	}
	memory, product := measure(p.memory, true), measure(p.product, false) // first, so that the clocks have risen
	launch, chain := measure(p.launch, false), measure(p.loads, true)
	inL2, less := measure(p.inL2, false), measure(p.less, false)
	apart, together := measure(p.apart, false), measure(p.together, false)
	if err != nil {
		return m, err
	}
	m = kernels.Calibration{
		Memory: float64(p.memory.Inputs[0]) / memory * 1e6, L2: float64(p.inL2.Inputs[0]-p.less.Inputs[0]) / (inL2 - less) * 1e6, FMAs: float64(p.product.Flops/2) / product * 1e6,
		Launch: launch, Load: (chain - launch) / loads, Barrier: together - apart,
	}
	return m, m.Check()
}

// fill allocates the arena, and measures the rate of copies in it.
func (c *calibrator) fill() error {
	c.half = min(1<<30, c.g.Device().Memory/16) &^ (1<<20 - 1)
	if err := c.g.Alloc(2 * c.half); err != nil {
		return err
	}
	block := make([]byte, min(16<<20, c.half))
	r := rand.New(rand.NewPCG(1, 35))
	for i, values := 0, kernels.Elements[float32](block); i < len(values); i++ {
		values[i] = r.Float32()*2 - 1
	}
	if err := c.g.Upload(exec.Span{Size: int64(len(block))}, block); err != nil {
		return err
	}
	for done := int64(len(block)); done < 2*c.half; done *= 2 {
		if err := c.g.Stream().Copy(c.g.Address(done), c.g.Address(0), min(done, 2*c.half-done)); err != nil {
			return err
		}
	}
	times, err := repeat(c.g, 5, time.Second, func(int) error { return c.g.Stream().Copy(c.g.Address(c.half), c.g.Address(0), c.half) })
	if err != nil {
		return err
	}
	c.rate = float64(c.half) / (float64(median(times).Nanoseconds()) / 1e3)
	return nil
}

// time returns the median time of a launch of a plan in us. Launches are queued while the device copies, so that none waits for the host.
func (c *calibrator) time(p *kernels.Plan, apart bool) (float64, error) {
	const groups, most, queued = 31, 100, 10 // groups of launches; launches of a group; us in which the host queues one
	size := int64(0)
	for _, bytes := range p.Inputs {
		size += padded(bytes)
	}
	places := int64(1)
	if apart {
		places = min(c.half/size, groups*most)
	}
	turns := make([]func() error, places)
	for i := range turns {
		at, in := int64(i)*size, []exec.Span(nil)
		for _, bytes := range p.Inputs {
			in = append(in, exec.Span{Offset: at, Size: bytes})
			at += padded(bytes)
		}
		run, err := c.g.Bind(p, in, exec.Outputs(p, exec.Span{Offset: c.half, Size: p.Out}), exec.Span{Offset: c.half + padded(p.Out), Size: p.Scratch})
		if err != nil {
			return 0, err
		}
		turns[i] = run
	}
	calls := 0
	run := func(n int) error {
		for range n {
			if err := turns[calls%len(turns)](); err != nil {
				return err
			}
			calls++
		}
		return nil
	}
	group := func(n int) error {
		for left := c.rate * queued * float64(n); left > 0; left -= float64(c.half / 2) {
			if err := c.g.Stream().Copy(c.g.Address(c.half+c.half/2), c.g.Address(c.half/2), c.half/2); err != nil {
				return err
			}
		}
		err := run(1)
		if err == nil {
			err = c.g.Record(0)
		}
		if err == nil {
			err = run(n)
		}
		if err == nil {
			err = c.g.Record(1)
		}
		return err
	}
	timed := func(n int) (d time.Duration, err error) {
		if err = group(n); err == nil {
			err = c.g.Sync() // the driver's queue has an end, at which the host would wait
		}
		if err == nil {
			d, err = c.g.Elapsed(0, 1)
		}
		return d, err
	}
	if err := c.g.Events(2); err != nil {
		return 0, err
	}
	warm, err := timed(4)
	if err != nil {
		return 0, err
	}
	n := int(min(max(4*2*time.Millisecond/max(warm, 1), 4), most))
	times := make([]time.Duration, groups)
	for i := range times {
		if times[i], err = timed(n); err != nil {
			return 0, err
		}
	}
	return float64(median(times).Nanoseconds()) / 1e3 / float64(n), nil
}
