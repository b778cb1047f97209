package gemm

import (
	"strings"

	"github.com/stheno-ml/stheno/kernels"
)

// product identifies a product by what its times depend on, except an epilogue.
type product struct {
	dtype          kernels.Dtype
	round          kernels.Precision
	batch, m, n, k int64
	a, b           Operand
	c              Form
}

// exceptionSMs are the SMs of the devices that have [exceptions].
const exceptionSMs = 132

// exceptions are products of which another candidate was measured to take less time on an H200 than the one of the least predicted time. Behind each are both
// times in us.
var exceptions = map[product]string{
	{kernels.Float32, kernels.BF16, 1, 512, 512, 4096, Operand{Trans: true, Form: BF16}, Operand{Form: BF16}, Plain}:  "hopper_bf16_one[8 1 512 1 0 0]",    // 10.62, 10.87
	{kernels.Float32, kernels.BF16, 1, 512, 10, 128, Operand{Trans: true}, Operand{}, Plain}:                          "small_bf16[1 4 32 1 0 0]",          // 2.02, 2.36
	{kernels.Float32, kernels.TF32, 1, 2304, 768, 8192, Operand{Trans: true, Form: TF32}, Operand{Form: TF32}, Plain}: "hopper_tf32_one[1 1 8192 1 0 0]",   // 85.67, 93.52
	{kernels.Float32, kernels.FullPrecision, 1, 784, 128, 10000, Operand{Trans: true}, Operand{}, Plain}:              "tall_hopper64_f32[42 1 240 1 0 3]", // 54.68, 58.71
	{kernels.Float32, kernels.FullPrecision, 1, 64, 256, 1024, Operand{}, Operand{Trans: true}, Plain}:                "thin_f32[4 1 256 1 0 0]",           // 5.68, 6.71
	{kernels.Float32, kernels.TF32, 64, 256, 3136, 64, Operand{Trans: true}, Operand{}, Plain}:                        "hopper_tf32[1 1 64 1 0 0]",         // 117.4, 128.3
	{kernels.Float32, kernels.FullPrecision, 1, 4096, 256, 1024, Operand{}, Operand{}, Plain}:                         "hopper_split[1 1 1024 1 64 0]",     // 32.85, 33.84
	{kernels.Float32, kernels.FullPrecision, 1, 4096, 256, 1024, Operand{}, Operand{Trans: true}, Plain}:              "hopper_split[1 1 1024 1 64 0]",     // 36.54, 39.3
	{kernels.Float32, kernels.FullPrecision, 1, 4096, 256, 768, Operand{}, Operand{}, Plain}:                          "hopper_split[1 1 768 1 64 0]",      // 27.84, 28.71
	{kernels.Float32, kernels.FullPrecision, 1, 50304, 768, 8192, Operand{Trans: true}, Operand{}, Plain}:             "hopper_split[1 1 8192 2 0 0]",      // 7816, 8127

	// H100: 24.38, 25.09 and 4.97, 5.62
	{kernels.Float32, kernels.FullPrecision, 1, 4096, 1, 4096, Operand{Trans: true}, Operand{}, Plain}: "joined_columns8_wide_f32[1 2 0 1 0 8]", // 15.9, 17.19
	{kernels.Float32, kernels.FullPrecision, 1, 1, 4096, 4096, Operand{}, Operand{}, Plain}:            "joined_columns8_wide_f32[1 2 0 1 0 8]", // 15.9, 17.19
	{kernels.Float32, kernels.FullPrecision, 1, 3072, 1, 768, Operand{Trans: true}, Operand{}, Plain}:  "joined_columns32_f32[1 8 0 1 0 32]",    // 3.83, 4.27
	{kernels.Float32, kernels.FullPrecision, 1, 1, 3072, 768, Operand{}, Operand{}, Plain}:             "joined_columns32_f32[1 8 0 1 0 32]",    // 3.83, 4.27
	// H100: 25.39, 27.47
	{kernels.Float32, kernels.FullPrecision, 1, 1024, 1, 16384, Operand{Trans: true}, Operand{}, Plain}: "joined_columns8_f32[1 8 0 1 0 8]",

	// In a step of a GPT of width 256 in TF32, whose operands are in L2, more splits are faster.
	{kernels.Float32, kernels.TF32, 1, 256, 256, 4096, Operand{Trans: true, Form: TF32}, Operand{Form: TF32}, Plain}:  "hopper_tf32_one[32 1 128 1 0 0]",
	{kernels.Float32, kernels.TF32, 1, 256, 1024, 4096, Operand{Trans: true, Form: TF32}, Operand{Form: TF32}, Plain}: "hopper_tf32_one[8 1 512 1 0 0]",
	{kernels.Float32, kernels.TF32, 1, 1024, 256, 4096, Operand{Trans: true, Form: TF32}, Operand{Form: TF32}, Plain}: "hopper_tf32_one[8 1 512 1 0 0]",
	{kernels.Float32, kernels.TF32, 1, 768, 256, 4096, Operand{Trans: true, Form: TF32}, Operand{Form: TF32}, Plain}:  "hopper_tf32_one[11 1 384 1 0 0]",
}

// exception returns the choice for a product of [exceptions], one without a candidate if it is none.
func (x *problem) exception(read Form) (got choice) {
	if x.dev.SMs != exceptionSMs {
		return got
	}
	a, b := x.A, x.B
	for _, o := range []*Operand{&a, &b} {
		if o.Form == BF16Split { // operands that are split before give the same bits
			o.Form, o.Ranges = Plain, 0
		}
	}
	name, ok := exceptions[product{x.Dtype, x.Round, x.Batch, x.M, x.N, x.K, a, b, x.C}]
	if !ok {
		return got
	}
	kernel, _, _ := strings.Cut(name, "[")
	x.each(read, func(c *candidate, as *problem) {
		if c.name != kernel {
			return
		}
		for _, d := range c.cuts(as, new(candidate), nil) {
			if got.c == nil && (option{c, *as, d}).String() == name {
				got = choice{c, d}
			}
		}
	})
	return got
}
