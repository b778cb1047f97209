package codegen

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/internal/cubin"
)

// As NVIDIA's assembler orders it, a kernel that holds its rows has loaded or copied all of them before it uses the first element: waiting
// for memory twice cost a third of the time.
func TestRowsLoadFirst(t *testing.T) {
	ptxas.Find(t)
	const load, copies = 0x981, 0xfae                                           // LDG, LDGSTS
	uses := map[uint64]bool{0x310: true, 0x209: true, 0x809: true, 0x91a: true} // F2F for sums, FMNMX for maxima, DEPBAR that waits for copies
	for columns, names := range map[int][]string{1000: {"log-softmax gradient"}, 4096: {"softmax gradient", "layer norm gradient"}, 32768: {"normalize"}} {
		for _, f := range testutil.Get[[]exprtest.RowFunction](t)(exprtest.RowFunctions(kernels.Float32)) {
			if !slices.Contains(names, f.Name) {
				continue
			}
			p := testutil.Get[*kernels.Plan](t)(rowsOf(kernels.Device{Major: 9, SMs: 132, SharedOptin: 232448}, f, exprtest.RowShape{Shape: []int{16384, columns}, Axes: []int{1}}))
			image := p.Launches[0].Kernel.Image.(image)
			assembled, _, spills := assemble(t, image, "sm_90a")
			code, loads := cubin.Section(assembled, ".text."+rowsEntry), 0
			for ; len(code) >= 16; code = code[16:] {
				operation := binary.LittleEndian.Uint64(code) & 0xfff
				if uses[operation] {
					break
				} else if operation == load || operation == copies {
					loads++
				}
			}
			want := image.layout.vectors * strings.Count(f.Operands, "e")
			if len(code) < 16 || loads < want || spills > 0 {
				t.Errorf("%s of %d columns: got %d loads before the first use and %d bytes of spills, want %d and none", f.Name, columns, loads, spills, want)
			}
		}
	}
}

// Rows that a cluster shares compute each exponential once: values of elements in shared memory are kept there, for a later step that reads them.
func TestRowsKeep(t *testing.T) {
	dev := kernels.Device{Kind: kernels.GPU, Major: 9, SMs: 132, SharedOptin: 232448}
	keeps := map[string]bool{"softmax": true, "log-softmax": false, "softmax gradient": true}
	for _, columns := range []int{40_000, 50_304, 50_305, 60_002, 100_000} {
		for _, f := range testutil.Get[[]exprtest.RowFunction](t)(exprtest.RowFunctions(kernels.Float32)) {
			kept, ok := keeps[f.Name]
			if !ok {
				continue
			}
			p := testutil.Get[*kernels.Plan](t)(rowsOf(dev, f, exprtest.RowShape{Shape: []int{8192, columns}, Axes: []int{1}}))
			i := p.Launches[0].Kernel.Image.(image)
			l, ptx := i.layout, string(testutil.Get[[]byte](t)(i.PTX(9)))
			if l.cluster == 0 || l.shared == "" || l.partial {
				t.Fatalf("%s of %d columns: no cluster keeps elements in shared memory", f.Name, columns)
			}
			if got, want := strings.Count(ptx, "ex2"), l.vectors*l.width; got != want {
				t.Errorf("%s of %d columns: got %d exponentials, want %d", f.Name, columns, got, want)
			}
			if stores := strings.Count(ptx, "st.shared.v4.f32"); l.width > 1 && (stores > 0) != kept {
				t.Errorf("%s of %d columns: got %d vectors kept, want some: %v", f.Name, columns, stores, kept)
			}
		}
	}
}
