package main

import (
	"fmt"
	"image/color"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// addOne has 10 blocks of 16 threads add one to a cell.
func addOne(p *notebook.Page) {
	const blocks, threads = 10, 16
	p.Heading("Add one")
	p.Text(`%d blocks of %d threads each add one to a cell in memory that starts at 0. What does it hold at the end? An addition to memory is three
		steps: read, add, write.`, blocks, threads)
	p.Source("versions/increment.cu", "read_add_write", "increment_racy_i32")
	p.Text(`If many threads read before the first one writes, they all read the same number and write the same number, and of all their additions one is
		left. That is a data race. The result depends on which thread is where at what moment, and on another day it may even be right.`)
	p.Source("versions/increment.cu", "increment_racy_shared_i32")
	p.Text(`The second one is the same race inside of each block, on a cell in shared memory, where a tool can see it: compute-sanitizer's racecheck watches
		shared memory. Both are wrong on purpose. Three ways make it right. An atomic addition is one step, made by the memory itself:`)
	p.Source("versions/increment.cu", "increment_atomic_i32")
	p.Text(`Where the work is more than one addition, a lock lets one thread in at a time. A compare-and-swap looks whether the lock is free and
		takes it in one step. The fences keep the work under the lock from being seen before it or after it:`)
	p.Source("versions/lock.cuh", "Mutex")
	p.Text(`This lock goes to whoever asks at the right moment. A ticket lock goes to threads in the order in which they came, and they wait by reading, which
		disturbs the memory less than trying to swap:`)
	p.Source("versions/lock.cuh", "TicketLock")
	t := figure.Table{
		Caption: fmt.Sprintf("%d blocks of %d threads add one: it should be %d", blocks, threads, blocks*threads),
		Header:  []string{"variant", "GPU's count", "GPU's time", "Go body's count", "CPU's time, by the Go body"},
	}
	for _, variant := range versions.IncrementVariants() {
		plan := notebook.Must(versions.Increment(variant, blocks, threads))
		onGPU := p.Measure("add one, "+variant+", count", "", func() float64 { return float64(counted(plan, p.Output(plan, nil))) })
		onHost, host := notebook.Timed(p, "add one, "+variant, func() int32 { return counted(plan, notebook.OnHost(plan)) })
		time := p.Measure("add one, "+variant+", time", "us", func() float64 { return p.MeanTime(plan, nil, 10, nil) })
		name, count := strings.ReplaceAll(variant, "_", ", "), fmt.Sprint(onHost)
		if strings.HasPrefix(variant, "racy") {
			name += " (wrong on purpose)"
			count += " by a model"
		}
		t.Add(name, onGPU, time, count, notebook.Micros(1000*host.Value))
	}
	p.Table(t)
	p.Text(`The threads of a warp read together and write together, so that a racy warp counts as one thread at best. On the CPU there is no such race to be seen: the Go bodies
		of the racy kernels are a model of it, in which each warp reads once and writes once, and their counts mean nothing for this machine. The other Go bodies take
		atomics and locks as the kernels do, with a goroutine for each block.`)
}

// counted is the cell after a run. A variant that is not racy must be exact.
func counted(p *kernels.Plan, out []byte) int32 {
	cell := kernels.Elements[int32](out)[0]
	if !strings.Contains(p.Op, "racy") && int64(cell) != p.Flops {
		notebook.Fail("%s: counted %d, want %d", p.Op, cell, p.Flops)
	}
	return cell
}

// waiting times one addition by each of more and more blocks.
func waiting(p *notebook.Page) {
	p.Heading("What waiting costs")
	p.Text("Now n blocks of one thread each: the more there are, the longer each waits for its turn.")
	most := p.Timed(1<<12, 1<<4)
	ch := figure.Chart{Title: "Time until n blocks of one thread have added one", XLabel: "n", YLabel: "time, µs", Log: true, LogX: true}
	per := map[string]float64{}
	for _, v := range []struct {
		variant string
		colour  color.RGBA
	}{{"mutex", figure.Red}, {"ticket", figure.Amber}, {"atomic", figure.Blue}} {
		s := figure.Series{Name: v.variant, Colour: v.colour}
		for n := 1; n <= most; n *= 4 {
			plan := notebook.Must(versions.Increment(v.variant, n, 1))
			m := p.Measure(fmt.Sprintf("%d blocks, %s", n, v.variant), "us", func() float64 { return p.MeanTime(plan, nil, 5, nil) })
			s.X, s.Y = append(s.X, float64(n)), append(s.Y, m.Value)
			per[v.variant] = m.Value / float64(n)
		}
		ch.Series = append(ch.Series, s)
	}
	p.Figure("waiting", "Time of one addition by each of n blocks, the launches that clear the cell and add included.", ch)
	p.Text(`With %d blocks, an addition takes %s µs under the mutex, %s µs under the ticket lock and %s µs as an atomic. A lock is for what no atomic can do, and for
		few threads: one for a block, after the block has done its part together.`, most, figure.Number(per["mutex"]), figure.Number(per["ticket"]), figure.Number(per["atomic"]))
}
