package gemm

import (
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
)

// convCandidate is a kernel of conv_hopper.cu: tiles of m filters by n pixels with K slices of step channels of a tap, or by n channels of taps with K slices of step
// pixels. slice is the time of a tile's K slice on an SM, and block that of writing a tile, in us.
type convCandidate struct {
	kernel     *kernels.Kernel
	form       Form
	filters    bool // for gradients w.r.t. the filters
	m, n, step int64
	shared     int64
	blocks     int64 // of an SM
	slice      float64
	block      float64
	halo       haloKind
	turned     bool // blocks have a warpgroup for 64 channels of a tap each, two that transpose and a producer
}

// Times of the model, here and below, are fitted to those of all candidates on an H200: of 200 drawn layers in both layouts, and of ResNet-50's layers, batch 64, which count five times. Some
// of the latter, of BF16 with channels last, in us with the preparing of filters:
//
//	outputs, H200            bf16   mid   one  narrow  narrow_pair
//	64 > 64, 3, 56           62.1  63.5  76.2    40.1         42.5
//	128 > 128, 3, 28         35.7  30.1  30.8    34.4         38.2
//	256 > 256, 3, 14         32.6  27.8  36.0    40.8         45.8
//	512 > 512, 3, 7          57.0  46.4  38.3    43.1         48.2
//	64 > 64, 1, 56           27.2  27.0  26.7    21.9         20.4
//	256 > 512, 1, 56 by 2    38.5  38.6  40.5    42.4         44.0
//	filters, H200                    mid   one  narrow  two blocks an SM
//	64 > 64, 3, 56                  63.0  72.2    51.4              53.3
//	128 > 128, 3, 28                32.5  33.5    37.3              49.4
//	256 > 256, 3, 14                32.4  36.1    38.8              43.2
//	512 > 512, 3, 7                 38.7  53.0    50.1              49.4
//	64 > 64, 1, 56                  30.1  27.2    26.8              24.7
//	filters in TF32, H200   two bf16  128 x 128  128 x 192  narrow
//	64 > 64, 3, 56               183      126.0      112.7    78.0
//	128 > 128, 3, 28             109       66.8       64.6    66.7
//	256 > 256, 3, 14             105       75.4       69.0    74.2
//	512 > 512, 3, 7              109       90.4       82.8    74.8
//	256 > 512, 1, 56 by 2        237       59.6       85.2    86.4
//
// Tiles of 128 x 256 in TF32, and of 128 x 128 for two blocks of an SM, were best for 7 of 296 layers, by at most 8 %. Those of two blocks an SM and of 128 x 192 for filters are not kept.
var convTable = slices.Concat(
	[]convCandidate{
		convOn("f32", BF16Split, 128, 128, 1, 0.834, 7.14), convOn("f32_narrow", BF16Split, 64, 256, 1, 1, 8.03),
		convOn("tf32_one", TF32, 128, 128, 1, 0.35, 2.5), convOn("tf32_narrow", TF32, 64, 256, 1, 0.47, 2.4), convOn("tf32_narrow_pair", TF32, 64, 128, 2, 0.53, 3),
		convOn("filters_f32", BF16Split, 128, 128, 1, 1.17, 10), convOn("filters_f32_narrow", BF16Split, 64, 256, 1, 1.3, 11.2),
		convHalo(haloStream, "f32", BF16Split, 136, 9.2, 4.4), convHalo(haloOfTaps, "filters_f32", BF16Split, 0, 0.58, 6), convHalo(haloStream, "tf32", TF32, 144, 3.3, 2.5), convHalo(haloKept, "kept_tf32", TF32, 136, 1.7, 6),
		convTurned("filters_tf32", 128, 128, 0.93, 3), convTurned("filters_tf32_narrow", 64, 192, 0.8, 3),
	},
	convHalves("bf16", BF16), convHalves("f16", F16),
)

// convHalves returns the kernels of a form of 16 bits.
func convHalves(name string, f Form) []convCandidate {
	return []convCandidate{
		convOn(name, f, 128, 256, 1, 0.648, 3.24), convOn(name+"_mid", f, 128, 192, 1, 0.483, 3.75), convOn(name+"_one", f, 128, 128, 1, 0.324, 3),
		convOn(name+"_narrow", f, 64, 256, 1, 0.509, 2), convOn(name+"_narrow_pair", f, 64, 128, 2, 0.694, 1.62),
		convOn("filters_"+name+"_mid", f, 128, 192, 1, 0.55, 3.5), convOn("filters_"+name+"_one", f, 128, 128, 1, 0.417, 2.89), convOn("filters_"+name+"_narrow", f, 64, 256, 1, 0.53, 2.66),
	}
}

// The model's times on an H200, in us.
const (
	convPrepareBlocks = 5       // blocks of an SM: as many as fit, since each copies its next square while it writes one
	convPrepareMost   = 1024    // blocks of a launch
	convLaunches      = 5.76    // of the launch that prepares, and of waiting for it
	convLaunch        = 2.78    // of another launch
	convScattered     = 85e3    // elements of filters that are written one by one in one
	convUneven        = 8       // of tiles that blocks share
	convPrepareBytes  = 8e6     // bytes that prepare reads and writes in one
	convSquare        = 0.00622 // of a square of prepare, if the whole device has one
	convSumBytes      = 1.1e6   // bytes of sums of splits in one
	convPairOdd       = 7.2     // of writing 128 x 128 results one by one, by a kind for two blocks of an SM
	convOddRows       = 1.8     // of K slices of outputs and images, and of filters, if pixels have an odd number of 16 bytes, less than convOddBytes
	convOddTaps       = 1.6
	convOddBytes      = 112
	convPairAlone     = 0.4                  // of the K slice of a kind for two blocks of an SM, if one has it for itself
	convApart         = 1.3                  // of a K slice of tiles that blocks share: blocks that are at other slices load none that L2 sends to several SMs at once
	convDirectSums    = 0.9                  // of the reduction across threads of a block of the direct form for filters, if each SM has one
	convPart          = 0.225                // of a part of a tile that blocks share, which one of them adds up
	convSumLeast      = 32                   // elements that a block of conv_hopper_sum writes at a time, at least
	convSumElements   = 4096                 // and at most
	convSquareSide    = 64                   // side of a square of prepare
	convBox           = 64                   // channels of a tap that are copied at once for the filters
	convPhaseBytes    = 16e6                 // of results that tiles of one phase after the other are of: they should be in L2 when the next phase's come
	convStrideLeast   = 10e6                 // bytes of images that L2 collects of the phases, whose elements are written apart
	convStrideBytes   = 2e6                  // of those beyond it that are written in one
	convParts         = 2 * 2 * 64 * 128 * 4 // bytes of the parts of tiles of a block
	convStaging       = 2 * 32 * 144         // bytes in which a block of two on an SM collects what it writes
)

// convSteps has the times of conv.cu's kernels in us by form, of windows and of filters: of a step of a block of tiles or strips, alone on its SM, and where blocks fill the SMs. Steps of
// the direct form are of 256 terms for filters, and of a term of 256 pixels for windows.
var convSteps = [2][convForms]struct{ alone, each float64 }{{{1.06, 0.76}, {1.29, 0.46}, {0.25, 0.03}}, {{1.31, 0.81}, {0.98, 0.51}, {1.05, 0.55}}}

// convOn returns a candidate of the named kernel with `blocks` blocks on an SM and the most stages that fit in shared memory.
func convOn(name string, f Form, m, n, blocks int64, slice, block float64) convCandidate {
	filters, body := strings.HasPrefix(name, "filters"), convPixelsBody
	if filters {
		body = convTapsBody
	}
	s := f.stored()
	stage, finish := s.splits*(m+n)*s.slice, int64(hopperFinish)
	if blocks > 1 {
		finish = convStaging
	}
	stages := 200 << 10 / blocks / stage * stage
	switch {
	case f != BF16Split:
	case m == 64: // three, of which two share memory for filters
		stages = 2*s.splits*128*s.slice + 3*s.splits*n*s.slice
	default:
		stages = 4 * stage
	}
	return convCandidate{own.Kernel("conv_hopper", "conv_hopper_"+name, body(f)), f, filters, m, n, s.slice / s.size, 2048 + stages + finish, blocks, slice, block, haloNone, false}
}

// convTurned returns a kernel for filters in TF32, see Turned of conv_kinds.cuh: a K slice has 64 pixels.
func convTurned(name string, m, n int64, slice, block float64) convCandidate {
	c := convOn(name, TF32, m, n, 1, slice, block)
	c.turned, c.step = true, convBox
	return c
}

// formTime returns the time of a form of conv.cu's kernels by the model, infinite if there is none. It is the greater of two: the steps of one block, and the steps of all blocks by the
// device's rate. A step more stands for a block's start and end. Writing the result is added; a stride makes it slower.
func (v Conv) formTime(form convForm, dev kernels.Device, a convArgs) float64 {
	blocks, unit, ok := v.blocks(form, a)
	if !ok {
		return math.Inf(1)
	}
	cost, splits := convSteps[v.Result/ConvFilters][form], v.splits(dev, a, blocks, unit)
	steps := float64(kernels.CeilDiv(a.K, unit*splits) + 1)
	if unit == a.K {
		steps = float64(a.K + convStep)
	}
	sums := 0.0 // of a block's threads
	if form == formDirect && v.Result == ConvFilters {
		sums = convDirectSums * float64(blocks*splits) / float64(dev.SMs)
	}
	us := sums + convLaunch + steps*max(cost.alone, float64(blocks*splits)/float64(dev.SMs)*cost.each) + float64(4*a.Count*a.Columns.Phases)/convPrepareBytes
	if splits > 1 {
		us += convLaunch + float64(4*a.Count*splits)/convPrepareBytes
	}
	return us
}

// takesForm reports whether methods yields a form with its time. The host and depthwise convolutions, whose kernels replace the tiles, have formTiles alone.
func (v Conv) takesForm(form convForm, dev kernels.Device, us float64) bool {
	return form == formTiles || dev.Kind == kernels.GPU && !v.filterEach() && !math.IsInf(us, 1)
}

// String names the form among the methods.
func (f convForm) String() string { return [...]string{"FMA", "FMA strips", "FMA direct"}[f] }

// convMethod is a way to compute a convolution, with its time by the model in us.
type convMethod struct {
	name string
	us   float64
	form Form                                       // in which operands are prepared, Plain without preparing
	emit func(p *kernels.Plan, args convArgs) error // appends the launches
}

// methods yields the ways to compute the convolution on a device.
func (v Conv) methods(dev kernels.Device) iter.Seq[convMethod] {
	return func(yield func(convMethod) bool) {
		if !v.tensorAlone() {
			for form := range convForms {
				if us := v.formTime(form, dev, v.arguments()); v.takesForm(form, dev, us) && !yield(convMethod{form.String(), us, Plain, func(p *kernels.Plan, args convArgs) error {
					if !v.filterEach() {
						return v.launchForm(form, p, dev, args)
					}
					empty := *p
					if ok, err := v.depthwise(p, dev); ok && err == nil && launchable(p, dev) {
						return nil
					}
					*p = empty
					return v.launch(p, dev, args)
				}}) {
					return
				}
			}
			if o, us := v.chooseProduct(dev); o.cut.blocks > 0 && !yield(v.byProduct(o, us)) {
				return
			}
		}
		if k, us, ok := v.few(dev); ok && !yield(convMethod{"few channels", us, Plain, func(p *kernels.Plan, args convArgs) error { return k.emit(p, v, args, dev) }}) {
			return
		}
		if us, emit, ok := v.fewSplit(dev); ok && !yield(convMethod{"few channels split", us, Plain, emit}) {
			return
		}
		if c, ok := v.pixels(dev); ok && !yield(convMethod{"pixels", c.us, Plain, func(p *kernels.Plan, args convArgs) error { return c.emit(p, v, args) }}) {
			return
		}
		for c, us := range v.tilings(dev) {
			if !yield(convMethod{c.entry(v), us, Plain, func(p *kernels.Plan, args convArgs) error { return c.emit(p, v, args) }}) {
				return
			}
		}
		for c, us := range v.candidates(dev) {
			if !yield(convMethod{c.kernel.Entry, us, c.form, func(p *kernels.Plan, args convArgs) error { return c.emit(p, v, args, dev) }}) {
				return
			}
		}
	}
}

// choose returns the method that takes the least time by the model, of huge convolutions one whose launches a GPU can make. There may be none.
func (v Conv) choose(dev kernels.Device) (best convMethod) {
	const huge, many = 1 << 31, 1 << 20 // elements; images, channels or filters, of which an axis of a grid has fewer
	sizes := v.elements()
	check := max(sizes[ConvOutput], sizes[ConvImages], sizes[ConvFilters]) >= huge || max(v.Images, v.Channels, v.Filters) >= many
	for m := range v.methods(dev) {
		if best.emit != nil && m.us >= best.us {
			continue
		}
		if check {
			if p, err := v.planBy(m); err != nil || !launchable(p, dev) {
				continue
			}
		}
		best = m
	}
	return best
}

// tensorAlone reports whether kernels for tensor cores alone read the operands.
func (v Conv) tensorAlone() bool {
	return v.ChannelsLast != [2]bool{} || v.Prepared || v.Split != [2]bool{}
}

// form returns the form of operands of tensor cores.
func (v Conv) form() Form {
	if v.Round == kernels.FullPrecision {
		return BF16Split
	}
	return Form(v.Round)
}

// candidates yields the kernels for tensor cores that compute the convolution on a device, and their times by the model.
func (v Conv) candidates(dev kernels.Device) iter.Seq2[convCandidate, float64] {
	return func(yield func(convCandidate, float64) bool) {
		if !isHopper(dev) || v.Dtype != kernels.Float32 || v.depthwiseGroups() {
			return
		}
		wants := v.form()
		w, able := v.windows(wants)
		if !able || !w.fit(wants, dev) {
			return
		}
		for _, c := range convTable {
			if c.filters != (v.Result == ConvFilters) || c.form != wants {
				continue
			}
			if us := c.time(w, v, dev); !math.IsInf(us, 1) && !yield(c, us) {
				return
			}
		}
	}
}

// ConvCandidate is a plan of a convolution with its time by the model, in us.
type ConvCandidate struct {
	Plan   *kernels.Plan
	Us     float64
	Chosen bool // by Plan
}

// ConvCandidates returns the plans that Plan of a convolution chooses among on a device, by names.
func ConvCandidates(v Conv, dev kernels.Device) (map[string]ConvCandidate, error) {
	if err := v.check(dev); err != nil {
		return nil, err
	}
	list, chosen := map[string]ConvCandidate{}, v.choose(dev).name
	for m := range v.methods(dev) {
		p, err := v.planBy(m)
		if err != nil || !launchable(p, dev) {
			continue
		}
		list[m.name] = ConvCandidate{p, m.us, m.name == chosen}
	}
	return list, nil
}

// fit reports whether a device has room for what is written in a form.
func (w convWindows) fit(f Form, dev kernels.Device) bool {
	return w.bytes(f) <= 1<<40 && (dev.Memory == 0 || w.bytes(f) <= dev.Memory/4)
}

// convCut is how a kernel divides its tiles: those whose K slices are dealt out to blocks (stream-K), or the pixels of a split, for the filters, or the tiles of pixels of a phase in a row,
// for images by strides; and the time by the model.
type convCut struct {
	shared, blocks, chunk int64 // blocks: of the launch
	direct                bool  // whether tiles of filters are written where they belong, without sums of splits
	us                    float64
}

// tiles returns the tiles of a phase, and their K slices.
func (c convCandidate) tiles(w convWindows) (tiles, slices int64) {
	down, pixels := w.groups*kernels.CeilDiv(w.filters, c.m), w.pixels()
	if c.filters {
		return down * kernels.CeilDiv(w.width(), c.n), kernels.CeilDiv(pixels, c.step)
	}
	return down * kernels.CeilDiv(pixels, c.n), w.rows.taps * w.columns.taps * kernels.CeilDiv(w.channels, c.step)
}

// oddRows reports whether TMA copies pixels of an odd number of 16 bytes, which takes longer.
func (c convCandidate) oddRows(w convWindows) bool {
	row := w.planes[1].pitch(c.form) * c.form.stored().size
	return row%32 > 0 && row < convOddBytes
}

// sliceTime returns the time of a K slice of outputs and images.
func (c convCandidate) sliceTime(w convWindows) float64 {
	if !c.filters && c.oddRows(w) {
		return convOddRows * c.slice
	}
	return c.slice
}

// cut returns the cut of the least time.
func (c convCandidate) cut(w convWindows, sms int64) convCut {
	tiles, slices := c.tiles(w)
	block, slice := c.block, c.sliceTime(w)
	if c.blocks > 1 && w.odd {
		block += convPairOdd * float64(c.m*c.n) / (128 * 128)
	}
	if w.phased() {
		return c.cutPhases(w, sms, block)
	}
	us := func(tiles, slices int64) float64 {
		if c.blocks > 1 && tiles <= sms {
			return float64(slices)*slice*convPairAlone + block
		}
		return float64(kernels.CeilDiv(tiles, c.blocks*sms)) * (float64(slices)*slice + block)
	}
	sums := float64(w.groups*w.filters*w.width()*4) / convSumBytes
	best := convCut{blocks: min(tiles, c.blocks*sms), chunk: w.pixels(), us: us(tiles, slices)}
	finish := 0.0
	if c.filters {
		if w.rows.taps*w.columns.taps*w.inner > 1 { // elements side by side are of different tiles
			finish = float64(w.groups*w.filters*w.width()) / convScattered
		}
		if best.direct = w.merged == 1 && finish < sums+convLaunch; !best.direct {
			finish = sums + convLaunch
		}
		best.us += finish
	}
	switch {
	case c.shares() && (c.form == BF16Split || len(w.prepared()) > 0): // the launch that prepares clears the arrivals, for splits one of its own
		apart := slice
		if c.form != BF16Split {
			apart *= convApart
		}
		for divide := int64(1); divide <= 16; divide++ {
			blocks := max(sms/divide, 1)
			even := convCut{tiles - max(tiles/blocks-1, 0)*blocks, blocks, best.chunk, best.direct, float64(kernels.CeilDiv(tiles*slices, blocks))*apart + float64(kernels.CeilDiv(tiles, blocks))*c.block +
				convUneven + float64(blocks)/float64(tiles)*convPart + finish}
			if even.us < best.us && tiles*slices >= blocks {
				best = even
			}
		}
	case c.filters:
		for splits := int64(2); splits <= min(slices, 4*c.blocks*sms/tiles); splits++ {
			each := kernels.CeilDiv(slices, splits)
			parts := tiles * kernels.CeilDiv(slices, each)
			if more := us(parts, each) + float64(splits)*sums + convLaunch; more < best.us {
				best = convCut{blocks: min(parts, c.blocks*sms), chunk: each * c.step, us: more}
			}
		}
	}
	if c.filters && c.oddRows(w) {
		best.us *= convOddTaps
	}
	return best
}

// cutPhases returns the cut of several phases. Tiles are ordered by falling numbers of taps and block b computes tiles b, b + blocks, ..., so that block 0 has the most work. Its time is the
// launch's.
func (c convCandidate) cutPhases(w convWindows, sms int64, block float64) convCut {
	tiles, _ := c.tiles(w)
	slices, count := float64(kernels.CeilDiv(w.channels, c.step)), w.phases[0].Count*w.phases[1].Count
	pixels := kernels.CeilDiv(w.pixels(), c.n)
	chunk := min(max(convPhaseBytes/(4*count*w.filters*c.n), 1), pixels)
	d := convCut{blocks: min(tiles*count, c.blocks*sms), chunk: chunk}
	rate := c.sliceTime(w)
	if c.blocks > 1 && tiles*count <= sms {
		rate *= convPairAlone
	}
	const maxTiles = 1 << 20 // of a block: the time of more follows from the mean number of taps
	if n := kernels.CeilDiv(tiles*count, max(d.blocks, 1)); n > maxTiles {
		d.us = float64(n) * (float64(w.phases[0].Size*w.phases[1].Size)/float64(count)*slices*rate + block)
		return d
	}
	for tile := int64(0); tile < tiles*count; tile += d.blocks {
		phase := tile / tiles
		y, _, _, _, _ := w.phases[0].phase(phase / w.phases[1].Count)
		x, _, _, _, _ := w.phases[1].phase(phase % w.phases[1].Count)
		d.us += float64(y*x)*slices*rate + block
	}
	return d
}

// shares reports whether blocks can share tiles: warpgroups have 64 x 128 sums.
func (c convCandidate) shares() bool {
	return c.form == BF16Split || !c.filters && c.blocks == 1 && c.m*c.n == 128*128
}

// time returns the time by the model, infinite if the kernel does not compute the convolution.
func (c convCandidate) time(w convWindows, v Conv, dev kernels.Device) float64 {
	us := 0.0
	if len(w.prepared()) > 0 {
		us = convLaunches
	}
	for _, x := range w.prepared() {
		us += float64(x.bytes(c.form)+4*x.elements())/convPrepareBytes + float64(x.squares(c.form))*convSquare
	}
	if clears, _ := w.clears(); clears {
		us += convLaunch + float64(4*v.elements()[ConvImages])/convPrepareBytes
		if w.spaced(v) {
			us -= float64(2*v.elements()[ConvImages]) / convPrepareBytes
		}
	}
	if w.phased() && !v.last(ConvImages) {
		us += max(float64(4*v.elements()[ConvImages])-convStrideLeast, 0) / convStrideBytes
	}
	if c.halo != haloNone {
		t, ok := c.haloTiles(w, v, int64(dev.SMs))
		if !ok {
			return math.Inf(1)
		}
		return us + convLaunch + t.us
	}
	return us + convLaunch + c.cut(w, int64(dev.SMs)).us
}

// threads returns those of a block: two warpgroups that multiply, and one warp beside them or a warpgroup, which leaves them its registers.
func (c convCandidate) threads() int {
	switch {
	case c.turned:
		return int(2*c.n + 96)
	case c.blocks > 1:
		return hopperThreads - 96
	}
	return hopperThreads
}
