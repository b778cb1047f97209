package main

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels/versions"
)

var warpgroupSteps = []step{
	{"Step 8: products of a warpgroup", `So far a warp multiplied, from registers that it had loaded from shared memory. From compute capability 9.0 on a warpgroup, 128 threads,
		starts a product of 64 x 128 x 16 elements with one instruction (wgmma): the tensor cores read both factors from shared memory, sums stay in
		registers, and the threads go on. What is left for them is to bring the pieces, in an order that has no bank conflicts (a swizzle), and to
		wait.`,
		[][]string{{"wgmma.cuh", "wgmma_fence", "wgmma_commit"}, {"versions/warpgroups.cuh", "multiply", "store"}, {"versions/matmul_wgmma.cu", "copy", "product"}}, ``},
	{"Step 9: the copy engine", `A tensor map describes a matrix, once, on the host. Then one thread asks for a box of it, and the copy engine (TMA) computes the addresses,
		applies the swizzle, and counts the bytes that have come at a barrier in shared memory (mbarrier). Six stages take turns: five are on their
		way while one is multiplied. A parity tells the turns of a barrier apart.`,
		[][]string{{"wgmma.cuh", "barrier_expect", "barrier_wait"}, {"versions/warpgroups.cuh", "Ring", "Barriers"}, {"versions/matmul_tma.cu", "product"}}, ``},
	{"Step 10: producer and consumers", `In step 9 all warps meet once a step, before a stage is filled again, and tensor cores wait for the slowest. Here a warp of its own does
		nothing but fill stages, as soon as the consumers have read them; these wait for full stages alone.`,
		[][]string{{"versions/matmul_roles.cu", "product"}}, ``},
	{"Step 11: larger tiles", `With 256 columns an instruction reads 10 kB from shared memory for twice the products that it makes of 6 kB with 128, and a tile of 128 x
		256 elements takes three quarters of the copies for each. But a thread has 128 sums, and two consumers with a producer are 384 threads, for
		which there are 168 registers each. So the producer, which needs a whole warpgroup for that, gives up most of its registers, and the
		consumers take them (setmaxnreg). Smaller tiles leave room for two blocks on a multiprocessor, of which one multiplies while the other
		waits; with three stages each, step 9 came close to this one in that way, but goes no further.`,
		[][]string{{"versions/matmul_wide.cu", "product"}}, ``},
	{"Step 12: persistent blocks, tiles in squares", `Until now a block ended with its tile: the next one began with empty stages, after the last sums were written. Now as many blocks as there
		are multiprocessors take tile after tile, and the producer fills stages for the next one while consumers write. And the tiles computed at
		one time lie in a square of C, so that together they read few rows of A and columns of B, which the level-2 cache holds.`,
		[][]string{{"versions/warpgroups.cuh", "Tiles"}, {"versions/matmul_persistent.cu", "product"}}, ``},
	{"Step 13: clusters", `Two blocks of a cluster are on neighbouring multiprocessors and compute tiles one above the other, of the same columns of B. Each asks for
		half of their piece of B, to be copied to both (multicast). A stage is free when the consumers of both have read it, so they tell both
		producers.`,
		[][]string{{"versions/matmul_cluster.cu", "product"}}, ``},
	{"Step 14: float32 again", `BF16 has 8 bits of float32's 24. But a float32 is the sum of three of them, and of the nine products of two such sums six count: those below
		2^-24 of the first are left out. At a sixth of the rate of BF16 that is more than units for float32 can do, with all 24 bits; version 7 did the
		same with TF32 and 22 bits. Tensor cores cut off where additions in float32 round, so they add up 32 terms alone.`,
		[][]string{{"versions/matmul_six.cu", "matmul_six_split_f32", "multiply", "product"}}, ``},
}

// warpgroupSizes are the sides of the matrices.
func warpgroupSizes(p *notebook.Page) [2]int { return [2]int{p.Timed(4096, 256), p.Timed(8192, 512)} }

// warpgroups climbs on, from version 8, on compute capability 9.0. before are the times of the steps before, and measured is the file of cuBLAS's.
func warpgroups(p *notebook.Page, before map[square]float64, measured string) {
	r := &racer{p: p, squares: map[int]*squares{}, us: map[[2]int]float64{}}
	if measured != "" {
		r.cublas = notebook.Must(readPeers(measured))
	}
	sizes := warpgroupSizes(p)
	last := len(versions.Docs("MatMul"))
	if len(warpgroupSteps) != last-versions.TiledMatMuls {
		notebook.Fail("there are %d steps for versions %d to %d", len(warpgroupSteps), versions.TiledMatMuls+1, last)
	}
	for v := 1; v <= versions.TiledMatMuls; v++ {
		for _, n := range sizes {
			r.us[[2]int{v, n}] = math.NaN()
			if us, ok := before[square{version: v, n: n}]; ok {
				r.us[[2]int{v, n}] = us
			}
		}
	}
	p.Heading("On to the limit of the tensor cores")
	p.Text(`Version 7 uses instructions that GPUs since 2020 have. The tensor cores of compute capability 9.0 (H100, H200) do four times as much, but
		only for who brings the factors fast enough, and the next steps are about nothing else. They take matrices in BF16, float32 with 8 bits of
		significand instead of 24, add up in float32, and write float32. To be short they are for square matrices with a side that is a multiple of
		256, not transposed; elsewhere, and on other GPUs, they are errors. The op's own kernel, ` + "`matmul_hopper.cu`" + `,
		does the same for all shapes. Times are of the product alone, of operands that are rounded already.`)
	if dev := p.GPU(); dev != nil && (dev.Major != 9 || dev.Minor != 0) {
		p.Text("This GPU has compute capability %d.%d: it runs none of them.", dev.Major, dev.Minor)
		return
	}
	for _, version := range []int{opFloat32, opBF16, ceiling} {
		for _, n := range sizes {
			r.time(version, n)
		}
	}
	for i, s := range warpgroupSteps {
		version := versions.TiledMatMuls + 1 + i
		s.show(p)
		var rates [2]string
		for k, n := range sizes {
			r.time(version, n)
			rates[k] = figure.Number(teraflops(n, r.us[[2]int{version, n}]))
		}
		p.Text("N = %d: %s TFLOP/s, N = %d: %s.", sizes[0], rates[0], sizes[1], rates[1])
	}
	r.summary(sizes, last)
}

// summary shows the steps side by side.
func (r *racer) summary(sizes [2]int, last int) {
	p, names, none := r.p, versionsOf("MatMul"), [2]float64{}
	us := func(version int) [2]float64 {
		return [2]float64{r.us[[2]int{version, sizes[0]}], r.us[[2]int{version, sizes[1]}]}
	}
	var cublas [2][2]float64
	for i, dtype := range []string{"float32", "BF16"} {
		for k, n := range sizes {
			cublas[i][k] = r.peer(dtype, n)
		}
	}
	p.Heading("What these steps gain")
	sides := [2]string{fmt.Sprintf("N = %d", sizes[0]), fmt.Sprintf("N = %d", sizes[1])}
	t := figure.Table{Caption: "TFLOP/s of the product of N x N matrices", Header: []string{"version", sides[0], "gain", sides[1], "gain"}}
	bars := figure.Bars{Title: "Products of N x N matrices by version", Label: "TFLOP/s", Series: []figure.BarSeries{{Name: sides[0], Colour: figure.Amber}, {Name: sides[1], Colour: figure.Blue}}}
	rates := func(us [2]float64) (float64, float64) { return teraflops(sizes[0], us[0]), teraflops(sizes[1], us[1]) }
	// add adds a row, with a shorter name for its bars, and what is gained on the times before, if there are any.
	add := func(name, short string, us, before [2]float64) {
		var gained [2]string
		for k := range before {
			if before[k] > 0 {
				gained[k] = gain(before[k], us[k])
			}
		}
		first, second := rates(us)
		t.Add(name, first, gained[0], second, gained[1])
		bars.Add(short, first, second)
	}
	for v := 1; v < versions.TiledMatMuls; v++ {
		first, second := rates(us(v))
		bars.Add(fmt.Sprintf("%d: %s", v, names[v-1]), first, second)
	}
	for v := versions.TiledMatMuls; v <= last; v++ {
		before := none
		if v > versions.TiledMatMuls+1 && v < last {
			before = us(v - 1)
		}
		name := fmt.Sprintf("%d: %s", v, names[v-1])
		add(name, name, us(v), before)
		switch v {
		case versions.TiledMatMuls:
			add("cuBLAS, float32", "cuBLAS, float32", cublas[0], none)
		case last - 1:
			add("the op in BF16", "the op, BF16", us(opBF16), none)
			add("cuBLAS, BF16, result in float32", "cuBLAS, BF16", cublas[1], none)
			add("ceiling: the same instructions, nothing to bring", "ceiling, BF16", us(ceiling), none)
		}
	}
	add("the op, `ops.MatMul`", "the op, float32", us(opFloat32), none)
	p.Table(t)
	p.Text(`The gain of step 8 is left out, since it has other operands, and that of step 14, which goes back to float32 and whose time includes taking
		the operands apart. Times are taken after 50 ms of the same product; cuBLAS's, by PyTorch, in a run of their own. Then the GPU is at its power limit, and what a kernel gains in cycles it loses
		in part by a lower clock: at N = %d steps 9 to 13 differ by little, and in another order from run to run. At N = %d, where less is found in the
		level-2 cache, larger tiles, the order of the tiles and clusters count.`, sizes[0], sizes[1])
	p.Text(`Version 13 reaches %s of the ceiling at N = %d, and version 14 %s of a sixth of it. The ceiling is what the same instructions take for
		factors that are there; no copy, no barrier.`, share(us(ceiling)[1], us(last - 1)[1]), sizes[1], share(6*us(ceiling)[1], us(last)[1]))
	p.Figure("warpgroups", "All steps in float32, 1 to 7 and 14, and in BF16, 8 to 13, beside the op, cuBLAS, and the tensor cores alone; longer is better.", bars)
}

// share prints the rate of the later of two times as a part of that of the other.
func share(ceiling, us float64) string {
	return notebook.In(100*ceiling/us, "%").String()
}
