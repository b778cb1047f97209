package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// doublePolicy tunes float64 products on the tensor cores. A product takes the form and the cut that take the least
// time by a rough model of the measured times.
type doublePolicy struct {
	chosen bool  // whether plans use them
	side   int64 // least rows and columns of the form for few of them
	wide   int64 // least bytes of the large operand for each multiprocessor then
	terms  int64 // least k
	least  int64 // least terms of a part of a cluster
	part   int64 // likewise of a copy
	most   int64 // copies
	spread int64 // least k of copies of more tiles than multiprocessors
	forms  [len(doubleForms)]doubleCost
	second float64 // us of another launch, which adds copies up
	copied float64 // and for each megabyte of them
}

// doubleCost is the time that a form takes, in us.
type doubleCost struct {
	start float64 // of a launch
	block float64 // of each block of a multiprocessor
	step  float64 // of each piece of the factors of a block
	alone float64 // of a piece, at least
}

var doublePolicies = kernels.Measured[doublePolicy]{
	{80, doublePolicy{}}, // not timed
	// H200, us, rows and columns up to 32, by tiles of FMA, by rows and cuBLAS: 32 x 17047 x 19782, A^T, 1563, 813, 803; 29 x 4151 x 5803, A^T, 179, 89, 81; 20 x 4656 x 3276, B^T, 104, 45, 40; 19745 x 656 x 17, A^T B^T, 65.5, 54, 41;
	// 31 x 536 x 44620, A^T, 101, 66, 74; 12104 x 809 x 27, A^T, 51, 30, 30; 3672 x 694 x 27, B^T, 22.7, 17.9, 13.4; 19 x 4107 x 1709 37.9, 38.4, 27.6. Less of a large operand: not timed.
	// H200, fitted to 150 times of 50 shapes, taken before the kernels had their present form: 10 % off on the average; of the cuts that were timed it takes ones
	// 1 % slower than the fastest, on the shapes that it was fitted to. It also takes cuts that were not timed. The times are in
	// bench/notes/gemm.md. spread: 17744 x 3045 x 62, A^T B^T 282, without copies 343 (201 since aligned rows of one operand are copied by 16 bytes); 1000 x 4000 x 1100 209, 224; 768 x 1500 x 768 53.3, 55.6. terms: 237 x 8 x 6570 small 14.0, by FMA 8.1; 120 x 22 x 39253 24.4, 26.4
	{90, doublePolicy{chosen: true, side: 17, wide: 1 << 16, terms: 17, least: 16, part: 48, most: 264, spread: 1024, second: 2.8, copied: 0.18, forms: [...]doubleCost{
		doubleLarge: {start: 4.5, block: 6.6, step: 1.16, alone: 1.0},
		doubleSmall: {start: 2.3, block: 1.1, step: 0.306, alone: 0.44},
		doubleTiny:  {start: 2.3, block: 0.62, step: 0.154, alone: 0.234},
		doubleRows:  {start: 2.3, block: 1.1, step: 0.4, alone: 0.44},
	}}},
	{100, doublePolicy{}}, // not timed
}

// cut returns the form and the cut of a float64 product on the tensor cores, or false if it has none: C is narrow, or
// sums are short.
func (p doublePolicy) cut(dev kernels.Device, c result, k int64) (best doubleCut, ok bool) {
	side := min(c.m, c.n)
	if !p.chosen || c.dt != kernels.Float64 || dev.Major != 9 || dev.Minor != 0 || k < p.terms {
		return best, false
	}
	if side <= doubleForms[doubleRows].m {
		if side < p.side || c.batch*max(c.m, c.n)*k*c.dt.Size() < p.wide*int64(dev.SMs) {
			return best, false
		}
		return p.best(dev, c, k, doubleRows)
	}
	return p.best(dev, c, k, doubleLarge, doubleSmall, doubleTiny)
}

// best returns the cut of the least time among those of some forms.
func (p doublePolicy) best(dev kernels.Device, c result, k int64, forms ...int) (best doubleCut, ok bool) {
	least, sms := math.Inf(1), int64(dev.SMs)
	try := func(d doubleCut) {
		blocks := d.blocks(c, k)
		if t := p.time(dev, d, c, k, blocks); t < least && kernels.CheckGrid(blocks) == nil && d.chunk(k) <= mostTerms {
			least, best, ok = t, d, true
		}
	}
	for _, form := range forms {
		f := doubleForms[form]
		tiles := f.count(c.batch, c.m, c.n)
		for parts := int64(1); parts <= max(f.join, 1) && (parts == 1 || parts*p.least <= k); parts *= 2 {
			try(doubleCut{form, parts, 1})
		}
		if f.join > 0 {
			continue
		}
		// Copies that fill the device once, twice and so on.
		for full := int64(1); full <= 4; full++ {
			if copies := min(full*sms/tiles, k/p.part, p.most); copies > 1 {
				try(doubleCut{form, 1, copies})
			}
		}
		// Tiles for one multiprocessor and a bit: copies spread them.
		if waves := kernels.CeilDiv(tiles, sms); waves > 1 && waves <= 3 && k >= p.spread {
			for copies := int64(2); copies <= 4; copies++ {
				try(doubleCut{form, 1, copies})
			}
		}
	}
	return best, ok
}

// time returns about how many us a cut of so many blocks takes.
func (p doublePolicy) time(dev kernels.Device, d doubleCut, c result, k, blocks int64) float64 {
	cost, pieces := p.forms[d.form], float64(d.chunk(k)/doubleForms[d.form].step)
	each := float64(kernels.CeilDiv(blocks, int64(dev.SMs))) // of the busiest multiprocessor
	t := cost.start + each*cost.block + pieces*max(cost.alone, each*cost.step)
	if d.copies > 1 {
		t += p.second + p.copied*float64(d.copies*c.count()*c.dt.Size())/1e6
	}
	return t
}
