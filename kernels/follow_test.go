package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/internal/cubin"
)

// Products, sums and the kernels of one launch wait by themselves on devices that can start them early, and on no others; kernels without the
// instruction do not.
func TestProductsWait(t *testing.T) {
	for _, stem := range []string{"matmul", "matmul_vector", "matmul_vector_bulk", "matmul_inner", "matmul_outer", "matmul_tall", "matmul_band", "matmul_double", "matmul_hopper", "matmul_mma", "matmul_mma_double", "matmul_mma_single", "matmul_mma_small", "matmul_tall_hopper", "sum", "dot", "reduce",
		"add", "broadcast", "scale", "windowsum", "attention_split", "scatter"} {
		entries := testutil.Get[[]string](t)(kernels.Builtin().Entries(stem))
		for _, i := range testutil.Get[*manifest.Source](t)(kernels.SourceOf(kernels.Builtin(), stem)).Images {
			target := i.Target
			if i.Omitted {
				continue
			}
			text := testutil.Get[[]byte](t)(kernels.ReadImage(kernels.Builtin(), stem, target))
			want := stem != "scatter" && slices.Contains([]string{"sm_90a", "sm_100", "sm_120"}, target)
			for _, entry := range entries {
				if strings.HasPrefix(entry, "matmul_mma_f32") && target != "sm_90a" && want {
					continue // empty kernels, which no plan launches
				}
				if got := (kernels.Code{Text: text, Target: target}).WaitsForDependencies(entry); got != want {
					t.Errorf("%s of %s for %s: WaitsForDependencies is %v, want %v", entry, stem, target, got, want)
				}
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
		"\tld.global.u32 a1, [d1];\n\tgriddepcontrol.wait;\n":                    false,
		"\tld.global.L1::no_allocate.u32 a1, [d1];\n\tgriddepcontrol.wait;\n":    true,
		"\tld.global.nc.L1::no_allocate.u32 a1, [d1];\n\tgriddepcontrol.wait;\n": false,
		"\t@p1 st.global.u32 [d1], a1;\n\tgriddepcontrol.wait;\n":                false,
		"\t@!p1 bra none;\n\tgriddepcontrol.wait;\n":                             false,
		"\tret;\n\tgriddepcontrol.wait;\n":                                       false,
		"\tred.global.add.u32 [d1], a1;\n\tgriddepcontrol.wait;\n":               false,
	} {
		text := fmt.Sprintf(ptx, "other", "\tgriddepcontrol.wait;\n") + fmt.Sprintf(ptx, "f", body) + fmt.Sprintf(ptx, "last", "\tgriddepcontrol.wait;\n")
		if got := (kernels.Code{Text: []byte(text)}).WaitsForDependencies("f"); got != want {
			t.Errorf("WaitsForDependencies is %v, want %v, of\n%s", got, want, body)
		}
	}
	if (kernels.Code{Text: []byte(fmt.Sprintf(ptx, "f", "\tgriddepcontrol.wait;\n"))}).WaitsForDependencies("g") {
		t.Error("a kernel that there is not waits")
	}
}

// The same of compiled code, whose instructions are changed.
func TestCompiledWaitsTooLate(t *testing.T) {
	const entry = "matmul_combine_f32"
	compiled := testutil.Get[[]byte](t)(kernels.ReadImage(kernels.Builtin(), "matmul_vector", "sm_90a"))
	changed := func(change func(code []byte, wait int)) kernels.Code {
		text := bytes.Clone(compiled)
		code := cubin.Section(text, ".text."+entry)
		for at := 0; at+16 <= len(code); at += 16 {
			if binary.LittleEndian.Uint64(code[at:])&0xfff == kernels.WaitOperation {
				change(code, at)
				return kernels.Code{Text: text}
			}
		}
		t.Fatal("no such instruction")
		return kernels.Code{}
	}
	put2 := func(code []byte, at int, low, high uint64) {
		binary.LittleEndian.PutUint64(code[at:], low)
		binary.LittleEndian.PutUint64(code[at+8:], high)
	}
	put := func(code []byte, at int, word uint64) { put2(code, at, word, 0) }
	for name, c := range map[string]struct {
		code kernels.Code
		want bool
	}{
		"as it is":                       {changed(func([]byte, int) {}), true},
		"not at all":                     {changed(func(code []byte, at int) { put(code, at, 0x7918) }), false},
		"some threads":                   {changed(func(code []byte, at int) { put(code, at, 0x082e) }), false},
		"after a read past L1":           {changed(func(code []byte, at int) { put2(code, at-16, 0x0000000402037981, 0x001eaa000c5e1900) }), true},
		"after a read-only read past L1": {changed(func(code []byte, at int) { put2(code, at-16, 0x0000000402037981, 0x001ea8000c5e9900) }), false},
		"after a read":                   {changed(func(code []byte, at int) { put(code, at-16, 0x0000000402027981) }), false},
		"after EXIT":                     {changed(func(code []byte, at int) { put(code, at-16, 0x000000000000094d) }), false},
		"after a jump":                   {changed(func(code []byte, at int) { put(code, at-16, 0x0000000000480947) }), false},
		"jumped to":                      {changed(func(code []byte, at int) { put(code, at-16, 0x0000000000000947) }), true},
		"no more than a":                 {kernels.Code{Text: compiled[:100]}, false},
	} {
		if got := c.code.WaitsForDependencies(entry); got != c.want {
			t.Errorf("%s: WaitsForDependencies is %v, want %v", name, got, c.want)
		}
	}
	if (kernels.Code{Text: compiled}).WaitsForDependencies("matmul_none") || strings.Contains(entry, "none") {
		t.Error("a kernel that there is not waits")
	}
}
