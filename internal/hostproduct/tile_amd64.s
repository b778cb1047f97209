//go:build !noasm && !gccgo && !safe

#include "textflag.h"

// A row of the tile: if products and sums are both NaN, the sum is the product, as in gonum's.
#define ROW(at, left, right) \
	VBROADCASTSS at(AX), Y10         \
	VMULPS       Y8, Y10, Y11        \
	VMULPS       Y9, Y10, Y12        \
	VADDPS       left, Y11, left     \
	VADDPS       right, Y12, right

// func tile(k int64, a, b, c *float32, stride int64)
TEXT ·tile(SB), NOSPLIT, $0-40
	MOVQ    k+0(FP), CX
	MOVQ    a+8(FP), AX
	MOVQ    b+16(FP), BX
	MOVQ    c+24(FP), DI
	MOVQ    stride+32(FP), DX
	LEAQ    (DI)(DX*2), SI
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS (DI)(DX*1), Y2
	VMOVUPS 32(DI)(DX*1), Y3
	VMOVUPS (SI), Y4
	VMOVUPS 32(SI), Y5
	VMOVUPS (SI)(DX*1), Y6
	VMOVUPS 32(SI)(DX*1), Y7

term:
	VMOVUPS (BX), Y8
	VMOVUPS 32(BX), Y9
	ROW(0, Y0, Y1)
	ROW(4, Y2, Y3)
	ROW(8, Y4, Y5)
	ROW(12, Y6, Y7)
	ADDQ    $16, AX
	ADDQ    $64, BX
	DECQ    CX
	JNZ     term

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, (DI)(DX*1)
	VMOVUPS Y3, 32(DI)(DX*1)
	VMOVUPS Y4, (SI)
	VMOVUPS Y5, 32(SI)
	VMOVUPS Y6, (SI)(DX*1)
	VMOVUPS Y7, 32(SI)(DX*1)
	VZEROUPPER
	RET
