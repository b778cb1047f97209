//go:build !noasm && !gccgo && !safe

#include "textflag.h"

// A row of the tile: if products and sums are both NaN, the sum is the product, as in gonum's.
#define ROW(BROADCAST, MUL, ADD, at, left, right) \
	BROADCAST at(AX), Y10        \
	MUL       Y8, Y10, Y11       \
	MUL       Y9, Y10, Y12       \
	ADD       left, Y11, left    \
	ADD       right, Y12, right

#define TILE(BROADCAST, MUL, ADD, size) \
	MOVQ    k+0(FP), CX           \
	MOVQ    a+8(FP), AX           \
	MOVQ    b+16(FP), BX          \
	MOVQ    c+24(FP), DI          \
	MOVQ    stride+32(FP), DX     \
	LEAQ    (DI)(DX*2), SI        \
	VMOVUPS (DI), Y0              \
	VMOVUPS 32(DI), Y1            \
	VMOVUPS (DI)(DX*1), Y2        \
	VMOVUPS 32(DI)(DX*1), Y3      \
	VMOVUPS (SI), Y4              \
	VMOVUPS 32(SI), Y5            \
	VMOVUPS (SI)(DX*1), Y6        \
	VMOVUPS 32(SI)(DX*1), Y7      \
term:                             \
	VMOVUPS (BX), Y8              \
	VMOVUPS 32(BX), Y9            \
	ROW(BROADCAST, MUL, ADD, 0*size, Y0, Y1) \
	ROW(BROADCAST, MUL, ADD, 1*size, Y2, Y3) \
	ROW(BROADCAST, MUL, ADD, 2*size, Y4, Y5) \
	ROW(BROADCAST, MUL, ADD, 3*size, Y6, Y7) \
	ADDQ    $(4*size), AX         \
	ADDQ    $64, BX               \
	DECQ    CX                    \
	JNZ     term                  \
	VMOVUPS Y0, (DI)              \
	VMOVUPS Y1, 32(DI)            \
	VMOVUPS Y2, (DI)(DX*1)        \
	VMOVUPS Y3, 32(DI)(DX*1)      \
	VMOVUPS Y4, (SI)              \
	VMOVUPS Y5, 32(SI)            \
	VMOVUPS Y6, (SI)(DX*1)        \
	VMOVUPS Y7, 32(SI)(DX*1)      \
	VZEROUPPER                    \
	RET

// func tile32(k int64, a, b, c *float32, stride int64)
TEXT ·tile32(SB), NOSPLIT, $0-40
	TILE(VBROADCASTSS, VMULPS, VADDPS, 4)

// func tile64(k int64, a, b, c *float64, stride int64)
TEXT ·tile64(SB), NOSPLIT, $0-40
	TILE(VBROADCASTSD, VMULPD, VADDPD, 8)

// func hasAVX() bool
TEXT ·hasAVX(SB), NOSPLIT, $0-1
	MOVL  $1, AX
	XORL  CX, CX
	CPUID
	ANDL  $(1<<27 | 1<<28), CX // OSXSAVE and AVX
	CMPL  CX, $(1<<27 | 1<<28)
	JNE   without
	XORL  CX, CX
	XGETBV
	ANDL  $6, AX // XMM and YMM
	CMPL  AX, $6
	SETEQ ret+0(FP)
	RET
without:
	MOVB  $0, ret+0(FP)
	RET
