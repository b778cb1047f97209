package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
)

// plainPeer is the name under which drawn cases on the host are compared.
const plainPeer = "plain loops and gonum's BLAS"

// random times drawn cases on the host.
func (b benchHost) random(c *console) error {
	seed := b.seed()
	drawn, err := b.drawing.cases(b.selection.Run, seed, opspec.Limits{Least: 1e3, Most: 64e6, Flops: 2e9})
	if err != nil {
		return err
	}
	if b.List {
		return writeShapes(c.out, drawn)
	}
	f := &results.File{GPU: fmt.Sprintf("%d cores", runtime.GOMAXPROCS(0)), Run: results.Run{Copy: hostCopy()}, Seed: seed}
	fmt.Fprintf(c.out, "the host's %d cores, copy %.1f GB/s, read and write counted; seed %d\n\n", runtime.GOMAXPROCS(0), f.Copy, seed)
	block := newRandomBlock(seed, blockOfHost)
	m := measurement{file: f, cases: drawnCases(drawn), time: func(one benchCase) (results.Row, error) {
		row, plain, err := one.(drawnCase).measureOnHost(block, b.runs())
		if err == nil {
			f.Peers = append(f.Peers, results.Peer{Key: row.Key, By: plainPeer, Micros: plain})
		}
		return row, err
	}}
	return errors.Join(m.run(c), conclude(c, f, b.Plot))
}

// measureOnHost times the host's body and, as plain, the plain loops, in microseconds.
func (d drawnCase) measureOnHost(block randomBlock, runs int) (row results.Row, plain float64, err error) {
	plan, _, err := d.timedCase.Case.Plan(d.Type, kernels.HostDevice())
	if err != nil {
		return row, 0, err
	}
	inputs, out := d.inputs(plan, block), kernels.Bytes(make([]float64, (plan.Out+7)/8))[:plan.Out]
	plain = micros(bestOf(runs, func() { d.Plain(inputs, out) }))
	ours := micros(bestOf(runs, func() { err = errors.Join(err, plan.Run(inputs, out, nil)) }))
	if err != nil {
		return row, 0, err
	}
	row = results.Row{Key: d.Key(), Bytes: d.timedCase.Case.Bytes(plan, d.Type, kernels.HostDevice()), Flops: plan.Flops, Runs: runs, Micros: ours, Min: ours, Max: ours}
	return row, plain, d.checkInto(&row, plan, inputs, out)
}

// bestOf returns the shortest time of a call: of that many calls, or of those that fit into 50 ms,
// at least one. A call that is too short to be timed is repeated.
func bestOf(runs int, call func()) time.Duration {
	const budget, shortest = 50 * time.Millisecond, 20 * time.Microsecond
	best, began := time.Duration(math.MaxInt64), time.Now()
	times := 1
	for i := 0; i < runs && (i == 0 || time.Since(began) < budget); {
		start := time.Now()
		for range times {
			call()
		}
		took := time.Since(start)
		if took < shortest && times < 1<<20 {
			times *= 2
			continue
		}
		best = min(best, took/time.Duration(times))
		i++
	}
	return max(best, 1)
}

// hostCopy is the bandwidth of a copy on all cores in GB/s, read and write counted.
func hostCopy() float64 {
	const size = 64 << 20
	from, to := make([]byte, size), make([]byte, size)
	best := time.Duration(math.MaxInt64)
	for range 6 { // the first run allocates
		start := time.Now()
		kernels.Parallel(size, 1<<20, func(lo, hi int64) { copy(to[lo:hi], from[lo:hi]) })
		best = min(best, time.Since(start))
	}
	return 2 * size / float64(max(best, 1))
}
