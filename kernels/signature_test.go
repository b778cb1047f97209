package kernels

import (
	"slices"
	"testing"
)

// The types of numbers follow from loads and stores, also of addresses that are computed in
// loops; a value that may be of either of two parameters or types has none.
func TestSignatureFloats(t *testing.T) {
	const ptx = `.entry x(
	.param .u64 x_0, .param .u64 x_1, .param .u64 x_2, .param .u64 x_3, .param .u64 x_4, .param .u64 x_5
)
{
	ld.param.u64 %rd1, [x_0];
	ld.param.u64 %rd2, [x_1];
	ld.param.u64 %rd3, [x_2];
	ld.param.u64 %rd4, [x_3];
	ld.param.u64 %rd5, [x_4];
	ld.param.u64 %rd6, [x_5];
	cvta.to.global.u64 %rd11, %rd1;
	cvta.to.global.u64 %rd12, %rd2;
	cvta.to.global.u64 %rd13, %rd3;
	cvta.to.global.u64 %rd14, %rd4;
	cvta.to.global.u64 %rd15, %rd5;
$L_1:
	ld.global.nc.L1::no_allocate.v4.f32 {%f1, %f2, %f3, %f4}, [%rd21+16];
	mul.wide.s32 %rd20, %r1, 4;
	add.s64 %rd21, %rd22, %rd20;
	mov.u64 %rd22, %rd11;
	@%p1 st.global.f64 [%rd12], %fd1;
	ld.global.f32 %f5, [%rd13];
	ld.global.u32 %r5, [%rd13+4];
	selp.b64 %rd30, %rd14, %rd15, %p2;
	st.global.f32 [%rd30], %f5;
	atom.global.add.f32 %f6, [%rd15], %f5;
	@%p1 bra $L_1;
}
`
	want := []string{"float32", "float64", "", "", "float32", ""}
	if got := signatures(ptx)["x"].floats(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
