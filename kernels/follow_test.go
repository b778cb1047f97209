package kernels

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Products wait by themselves on devices that can start them early, and on no others; kernels without the
// instruction do not.
func TestProductsWait(t *testing.T) {
	for _, stem := range []string{"matmul", "matmul_vector", "matmul_outer", "matmul_band", "matmul_double", "matmul_hopper", "matmul_mma", "matmul_mma_double", "matmul_mma_small", "reduce"} {
		entries := testutil.Get[[]string](t)(own.Entries(stem))
		for _, target := range manifest.Targets {
			text := testutil.Get[[]byte](t)(own.readImage(stem, target))
			want := stem != "reduce" && slices.Contains([]string{"sm_90a", "sm_100", "sm_120"}, target)
			if (stem == "matmul_hopper" || stem == "matmul_mma_small") && target != "sm_90a" && want {
				continue // empty kernels, which no plan launches
			}
			for _, entry := range entries {
				if strings.HasPrefix(entry, "matmul_mma_f32") && target != "sm_90a" && want {
					continue // likewise
				}
				if got := (Code{Text: text, Target: target}).Waits(entry); got != want {
					t.Errorf("%s of %s for %s: Waits is %v, want %v", entry, stem, target, got, want)
				}
			}
		}
	}
}

// Generated kernels wait likewise, as PTX and assembled beforehand.
func TestGeneratedWait(t *testing.T) {
	dev, shape := Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 232448, Cooperative: true}, []int{1000}
	for name, text := range map[string]string{"map": "tanh(a)", "prebuilt map": "-a"} {
		f := testutil.Get[expr.Func](t)(expr.Parse(text, Float32, "a"))
		p := testutil.Get[*Plan](t)(Map(dev, f, shape, Dense(shape)))
		for _, major := range []int{7, 8, 9, 10, 12} {
			code := testutil.Get[Code](t)(p.Launches[0].Kernel.Image.Code(major, 0))
			if got, want := code.Waits(mapEntry), major >= 9; got != want {
				t.Errorf("%s for %d.0, of %s: Waits is %v, want %v", name, major, code.Target, got, want)
			}
		}
	}
}

// A kernel that reads, writes or returns before it waits, or where a thread may pass the wait, does not count as one that
// waits.
func TestWaitsTooLate(t *testing.T) {
	const ptx = ".version 7.8\n.visible .entry %s(\n\t.param .u64 p0\n)\n.maxntid 1, 1, 1\n{\n\t.reg .b32 a<2>;\n%s\tret;\n}\n"
	for body, want := range map[string]bool{
		"\tgriddepcontrol.wait;\n": true,
		"\tld.param.u64 d1, [p0];\n\tadd.u32 a1, a1, 1;\n\tgriddepcontrol.wait;\n\tld.global.u32 a1, [d1];\n": true,
		"":                                      false,
		"\tgriddepcontrol.launch_dependents;\n": false,
		"\tld.global.u32 a1, [d1];\n\tgriddepcontrol.wait;\n":      false,
		"\t@p1 st.global.u32 [d1], a1;\n\tgriddepcontrol.wait;\n":  false,
		"\t@!p1 bra none;\n\tgriddepcontrol.wait;\n":               false,
		"\tret;\n\tgriddepcontrol.wait;\n":                         false,
		"\tred.global.add.u32 [d1], a1;\n\tgriddepcontrol.wait;\n": false,
	} {
		text := fmt.Sprintf(ptx, "other", "\tgriddepcontrol.wait;\n") + fmt.Sprintf(ptx, "f", body) + fmt.Sprintf(ptx, "last", "\tgriddepcontrol.wait;\n")
		if got := (Code{Text: []byte(text)}).Waits("f"); got != want {
			t.Errorf("Waits is %v, want %v, of\n%s", got, want, body)
		}
	}
	if (Code{Text: []byte(fmt.Sprintf(ptx, "f", "\tgriddepcontrol.wait;\n"))}).Waits("g") {
		t.Error("a kernel that there is not waits")
	}
}

// The same of compiled code, whose instructions are changed.
func TestCompiledWaitsTooLate(t *testing.T) {
	const entry = "matmul_combine_f32"
	cubin := testutil.Get[[]byte](t)(own.readImage("matmul_vector", "sm_90a"))
	changed := func(change func(code []byte, wait int)) Code {
		text := bytes.Clone(cubin)
		code := section(text, ".text."+entry)
		for at := 0; at+16 <= len(code); at += 16 {
			if binary.LittleEndian.Uint64(code[at:])&0xfff == waitOperation {
				change(code, at)
				return Code{Text: text}
			}
		}
		t.Fatal("no such instruction")
		return Code{}
	}
	put := func(code []byte, at int, word uint64) {
		binary.LittleEndian.PutUint64(code[at:], word)
		binary.LittleEndian.PutUint64(code[at+8:], 0)
	}
	for name, c := range map[string]struct {
		code Code
		want bool
	}{
		"as it is":       {changed(func([]byte, int) {}), true},
		"not at all":     {changed(func(code []byte, at int) { put(code, at, 0x7918) }), false},
		"some threads":   {changed(func(code []byte, at int) { put(code, at, 0x082e) }), false},
		"after a read":   {changed(func(code []byte, at int) { put(code, at-16, 0x0000000402027981) }), false},
		"after EXIT":     {changed(func(code []byte, at int) { put(code, at-16, 0x000000000000094d) }), false},
		"after a jump":   {changed(func(code []byte, at int) { put(code, at-16, 0x0000000000480947) }), false},
		"jumped to":      {changed(func(code []byte, at int) { put(code, at-16, 0x0000000000000947) }), true},
		"no more than a": {Code{Text: cubin[:100]}, false},
	} {
		if got := c.code.Waits(entry); got != c.want {
			t.Errorf("%s: Waits is %v, want %v", name, got, c.want)
		}
	}
	if (Code{Text: cubin}).Waits("matmul_none") || strings.Contains(entry, "none") {
		t.Error("a kernel that there is not waits")
	}
}
