package kernels_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// text is an image of that PTX.
type text string

func (text) Name() string { return "text" }

func (t text) Code(int, int) (kernels.Code, error) {
	return kernels.Code{Text: []byte(t), Target: "ptx"}, nil
}

// compiledText is an image without a description of its entry points.
type compiledText struct{ text }

func (compiledText) Code(int, int) (kernels.Code, error) {
	return kernels.Code{Text: []byte{0}, Target: "sm_90a"}, nil
}

// Check fails for an entry point that is not there, naming those that come nearest.
func TestCheckEntries(t *testing.T) {
	l := kernels.NewLibrary("example.com/own", copied(t, "add"))
	l.Kernel("add", "add_f64", nil)
	if err := kernels.Check(l); err != nil {
		t.Error(err)
	}
	l.Kernel("add", "ad_f32", nil)
	want := "kernels of example.com/own: no entry point ad_f32 in add.cu for sm_70: the nearest are add_f32, add_f64"
	if err := kernels.Check(l); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	l = kernels.NewLibrary("example.com/own", copied(t, "add"))
	l.Kernel("sub", "sub_f32", nil)
	if err := kernels.Check(l); err == nil || !strings.Contains(err.Error(), `no images of "sub"`) {
		t.Errorf("a kernel of no source: got error %v", err)
	}
}

// Check fails for whatever a launch has that its entry point does not take.
func TestCheckPlans(t *testing.T) {
	dev := kernels.Device{Major: 9, SMs: 132, SharedOptin: 227 << 10}
	type refs struct{ A, B, Out kernels.Ref }
	for want, change := range map[string]func(l *kernels.Launch){
		"":                        func(*kernels.Launch) {},
		"got 3 arguments, want 4": func(l *kernels.Launch) { l.Args = l.Args[:3] },
		"argument 3: got a int32, want a 64-bit integer":   func(l *kernels.Launch) { l.Args[3] = int32(8) },
		"argument 3: got a float64, want a 64-bit integer": func(l *kernels.Launch) { l.Args[3] = 8.0 },
		"argument 3: got a int, want a 64-bit integer":     func(l *kernels.Launch) { l.Args[3] = 8 },
		"argument 0: got an int64, want a Ref":             func(l *kernels.Launch) { l.Args[0] = int64(8) },
		"argument 1: got operand 2 of a plan of 2 inputs":  func(l *kernels.Launch) { l.Args[1] = kernels.In(2) },
		"argument 1: got offset 64 of in1":                 func(l *kernels.Launch) { l.Args[1] = kernels.At(1, 64) },
		"got blocks of 2048 threads, want 1 to 1024":       func(l *kernels.Launch) { l.Block[1] = 8 },
		"got a grid of [1 65536 1] blocks":                 func(l *kernels.Launch) { l.Grid[1] = 1 << 16 },
		"no entry point add_f16 in stheno/add: the nearest are add_f32, add_f64": func(l *kernels.Launch) {
			l.Kernel = &kernels.Kernel{Image: kernels.Builtin().Image("add"), Entry: "add_f16", Body: nil}
		},
		"argument 0: its Go body takes float64, the entry point float32": func(l *kernels.Launch) {
			l.Kernel = &kernels.Kernel{Image: kernels.Builtin().Image("add"), Entry: "add_f32", Body: func(c kernels.Call) { kernels.Slice[float64](c, kernels.Args[refs](c).A) }}
		},
		"argument 2: its Go body takes float32, the entry point float64": func(l *kernels.Launch) {
			l.Kernel = &kernels.Kernel{Image: kernels.Builtin().Image("add"), Entry: "add_f64", Body: func(c kernels.Call) {
				args := kernels.Args[refs](c)
				kernels.Slice[int32](c, args.A)
				kernels.Slice[float32](c, args.Out)
			}}
		},
		"its Go body panics on zeros: argument 0 is a kernels.Ref": func(l *kernels.Launch) {
			l.Kernel = &kernels.Kernel{Image: kernels.Builtin().Image("add"), Entry: "add_f32", Body: func(c kernels.Call) { kernels.Args[struct{ N int64 }](c) }}
		},
		"without an image":          func(l *kernels.Launch) { l.Kernel = &kernels.Kernel{Entry: "x"} },
		"got no kernel":             func(l *kernels.Launch) { l.Kernel = nil },
		"got code for sm_90a, want": func(l *kernels.Launch) { l.Kernel = &kernels.Kernel{Image: compiledText{}, Entry: "x", Body: nil} },
		"in text, which has none":   func(l *kernels.Launch) { l.Kernel = &kernels.Kernel{Image: text(" "), Entry: "x", Body: nil} },
		"got 4 arguments, want 1": func(l *kernels.Launch) {
			l.Kernel = &kernels.Kernel{Image: text(".entry x(\n\t.param .align 8 .b8 x_0[16]\n)\n"), Entry: "x", Body: nil}
		},
		"want 1 to 64": func(l *kernels.Launch) {
			l.Kernel = &kernels.Kernel{Image: text(".entry x(\n)\n.maxntid 8, 8, 1\n{}"), Entry: "x", Body: nil}
			l.Args = nil
		},
		"argument 0: got a int32, w": func(l *kernels.Launch) {
			l.Kernel = &kernels.Kernel{Image: text(".entry x(.param .f32 a)"), Entry: "x", Body: nil}
			l.Args = []any{int32(1)}
		},
	} {
		p := basic.Add(dev, kernels.Float32, 15)
		change(&p.Launches[0])
		err := new(kernels.Checker).Check(p)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// Generated code is checked as compiled code is.
func TestCheckGenerated(t *testing.T) {
	p := reduce.Reduce(kernels.Device{Major: 9, SMs: 132, SharedOptin: 227 << 10}, kernels.Float32, 1<<20, testutil.Get[codegen.Reduction](t)(codegen.ParseReduction("max(a, b*b)")), 0)
	if err := new(kernels.Checker).Check(p); err != nil {
		t.Error(err)
	}
	p.Launches[0].Args[3] = int32(1)
	if err := new(kernels.Checker).Check(p); err == nil || !strings.Contains(err.Error(), "reduce_f32: argument 3: got a int32, want a 64-bit integer") {
		t.Errorf("got error %v", err)
	}
}
