package bench

import (
	"fmt"
	"math/rand/v2"
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
	dev  kernels.Device
	half int64
	rate float64 // of copies, bytes a us
}

// The kernel of most measurements: a block of 256 threads adds up a row, 64 bytes of each thread at a time.
const (
	rowKernel = "row[256 1 0]"
	roundOf   = 256 * 64 / 4 // elements that a block loads at a time
)

func calibrate(g *exec.GPUBackend) (m kernels.Calibration, err error) {
	c := &calibrator{g: g, dev: g.Device()}
	c.dev.Calibration = kernels.Calibration{}
	if err := c.fill(); err != nil {
		return m, err
	}
	sms := int64(c.dev.SMs)
	const rows, length, load = 1 << 12, 1 << 14, 32
	large := min(c.half/4/length, rows*4)
	measure := func(outer, r int64, name string, apart bool) (us float64) {
		if err == nil {
			us, err = c.sum(outer, r, name, apart)
		}
		return us
	}
	inL2 := max(c.dev.L2/3/4/roundOf, 12)
	memory := measure(large, length, rowKernel, true)
	m.Launch = measure(1, roundOf, rowKernel, false)
	cold := measure(1, roundOf*(load+1), rowKernel, true)
	most, least := measure(inL2, roundOf, rowKernel, false), measure(inL2/4, roundOf, rowKernel, false)
	plain, waits := measure(sms, roundOf, rowKernel, false), measure(1, sms*roundOf, fmt.Sprintf("row-once[256 %d 0]", sms), false)
	if err != nil {
		return m, err
	}
	if m.FMAs, err = c.product(1 << 12); err != nil {
		return m, err
	}
	m.Memory = float64(large*length*4) / memory * 1e6
	m.L2 = float64((inL2-inL2/4)*roundOf*4) / (most - least) * 1e6
	m.Load, m.Barrier = (cold-m.Launch)/load, waits-plain
	return m, m.Check()
}

// fill allocates the arena, and measures the rate of copies in it.
func (c *calibrator) fill() error {
	c.half = min(1<<30, c.dev.Memory/16) &^ (1<<20 - 1)
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

// sum times a candidate of a sum of outer x r float32 over r. Each launch reads other memory if the sums are to be apart, else all read the same.
func (c *calibrator) sum(outer, r int64, name string, apart bool) (us float64, err error) {
	names, _, plans := reduce.Candidates(c.dev, kernels.Float32, outer, r, 1)
	for i, p := range plans {
		if names[i] == name {
			return c.time(p, apart)
		}
	}
	return 0, fmt.Errorf("got no candidate %s for a sum of %d x %d, want one of %s", name, outer, r, strings.Join(names, ", "))
}

// product returns the multiply-adds a second of a square product.
func (c *calibrator) product(n int64) (float64, error) {
	for n*n*4*3 > c.half {
		n /= 2
	}
	dev := c.dev
	dev.FMA = true
	p, err := gemm.Product{Dtype: kernels.Float32, Batch: 1, M: n, N: n, K: n}.Plan(dev)
	if err != nil {
		return 0, err
	}
	us, err := c.time(p, false)
	return float64(n) * float64(n) * float64(n) / us * 1e6, err
}

// time returns the median time of a launch of a plan in us. Launches are queued while the device copies, so that none waits for the host.
func (c *calibrator) time(p *kernels.Plan, apart bool) (float64, error) {
	const groups, most, queued = 9, 100, 10 // groups of launches; launches of a group; us in which the host queues one
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
	group := func(i, n int) error {
		for left := c.rate * queued * float64(n); left > 0; left -= float64(c.half / 2) {
			if err := c.g.Stream().Copy(c.g.Address(c.half+c.half/2), c.g.Address(c.half/2), c.half/2); err != nil {
				return err
			}
		}
		err := run(1)
		if err == nil {
			err = c.g.Record(2 * i)
		}
		if err == nil {
			err = run(n)
		}
		if err == nil {
			err = c.g.Record(2*i + 1)
		}
		return err
	}
	each := func(i, n int) (float64, error) {
		d, err := c.g.Elapsed(2*i, 2*i+1)
		return float64(d.Nanoseconds()) / 1e3 / float64(n), err
	}
	if err := c.g.Events(2 * groups); err != nil {
		return 0, err
	}
	if err := group(0, 4); err != nil {
		return 0, err
	}
	if err := c.g.Sync(); err != nil {
		return 0, err
	}
	us, err := each(0, 4)
	if err != nil {
		return 0, err
	}
	n := int(min(max(2000/us, 4), most))
	times := make([]time.Duration, groups)
	for i := range groups {
		if err := group(i, n); err != nil {
			return 0, err
		}
	}
	if err := c.g.Sync(); err != nil {
		return 0, err
	}
	for i := range times {
		if times[i], err = c.g.Elapsed(2*i, 2*i+1); err != nil {
			return 0, err
		}
	}
	return float64(median(times).Nanoseconds()) / 1e3 / float64(n), nil
}
