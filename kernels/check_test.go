package kernels

import (
	"slices"
	"strings"
	"testing"
)

// text is an image of that PTX.
type text string

func (text) Name() string                  { return "text" }
func (t text) Code(int, int) (Code, error) { return Code{Text: []byte(t), Target: "ptx"}, nil }

// cubin is an image without a description of its entry points.
type cubin struct{ text }

func (cubin) Code(int, int) (Code, error) { return Code{Text: []byte{0}, Target: "sm_90a"}, nil }

// Check fails for an entry point that is not there, naming those that come nearest.
func TestCheckEntries(t *testing.T) {
	l := NewLibrary("example.com/own", copied(t, "add"))
	l.Kernel("add", "add_f64", nil)
	if err := Check(l); err != nil {
		t.Error(err)
	}
	l.Kernel("add", "ad_f32", nil)
	want := "kernels of example.com/own: no entry point ad_f32 in add.cu for sm_70: the nearest are add_f32, add_f64"
	if err := Check(l); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	l = NewLibrary("example.com/own", copied(t, "add"))
	l.Kernel("sub", "sub_f32", nil)
	if err := Check(l); err == nil || !strings.Contains(err.Error(), `no images of "sub"`) {
		t.Errorf("a kernel of no source: got error %v", err)
	}
}

// Check fails for whatever a launch has that its entry point does not take.
func TestCheckPlans(t *testing.T) {
	dev := Device{Major: 9, SMs: 132, SharedOptin: 227 << 10}
	for want, change := range map[string]func(l *Launch){
		"":                        func(*Launch) {},
		"got 3 arguments, want 4": func(l *Launch) { l.Args = l.Args[:3] },
		"argument 3: got a int32, want a 64-bit integer":   func(l *Launch) { l.Args[3] = int32(8) },
		"argument 3: got a float64, want a 64-bit integer": func(l *Launch) { l.Args[3] = 8.0 },
		"argument 3: got a int, want a 64-bit integer":     func(l *Launch) { l.Args[3] = 8 },
		"argument 0: got an int64, want a Ref":             func(l *Launch) { l.Args[0] = int64(8) },
		"argument 1: got operand 2 of a plan of 2 inputs":  func(l *Launch) { l.Args[1] = Ref{2, 0} },
		"argument 1: got offset 64 of in1":                 func(l *Launch) { l.Args[1] = Ref{1, 64} },
		"got blocks of 2048 threads, want 1 to 1024":       func(l *Launch) { l.Block[1] = 8 },
		"got a grid of [1 65536 1] blocks":                 func(l *Launch) { l.Grid[1] = 1 << 16 },
		"no entry point add_f16 in stheno/add: the nearest are add_f32, add_f64": func(l *Launch) {
			l.Kernel = &Kernel{own.Image("add"), "add_f16", nil}
		},
		"argument 0: its Go body takes float64, the entry point float32": func(l *Launch) {
			l.Kernel = &Kernel{own.Image("add"), "add_f32", func(c Call) { Slice[float64](c, 0) }}
		},
		"argument 2: its Go body takes float32, the entry point float64": func(l *Launch) {
			l.Kernel = &Kernel{own.Image("add"), "add_f64", func(c Call) { Slice[int32](c, 0); Slice[float32](c, 2) }}
		},
		"its Go body panics on zeros: interface conversion": func(l *Launch) {
			l.Kernel = &Kernel{own.Image("add"), "add_f32", func(c Call) { c.Int(0) }}
		},
		"without an image":          func(l *Launch) { l.Kernel = &Kernel{Entry: "x"} },
		"got no kernel":             func(l *Launch) { l.Kernel = nil },
		"got code for sm_90a, want": func(l *Launch) { l.Kernel = &Kernel{cubin{}, "x", nil} },
		"in text, which has none":   func(l *Launch) { l.Kernel = &Kernel{text(" "), "x", nil} },
		"got 4 arguments, want 1":   func(l *Launch) { l.Kernel = &Kernel{text(".entry x(\n\t.param .align 8 .b8 x_0[16]\n)\n"), "x", nil} },
		"want 1 to 64": func(l *Launch) {
			l.Kernel = &Kernel{text(".entry x(\n)\n.maxntid 8, 8, 1\n{}"), "x", nil}
			l.Args = nil
		},
		"argument 0: got a int32, w": func(l *Launch) {
			l.Kernel = &Kernel{text(".entry x(.param .f32 a)"), "x", nil}
			l.Args = []any{int32(1)}
		},
	} {
		p := Add(dev, Float32, 15)
		change(&p.Launches[0])
		err := new(Checker).Check(p)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

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

// Generated code is checked as compiled code is.
func TestCheckGenerated(t *testing.T) {
	p := reducePlan(t, "max(a, b*b)", 1<<20)
	if err := Check(own, p); err != nil {
		t.Error(err)
	}
	p.Launches[0].Args[3] = int32(1)
	if err := Check(own, p); err == nil || !strings.Contains(err.Error(), "reduce_f32: argument 3: got a int32, want a 64-bit integer") {
		t.Errorf("got error %v", err)
	}
}
