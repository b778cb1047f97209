package versions

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// The plans' tiles, blocks and shared memory are those that the entry points in
// matmul.cu and matmul_tensor.cu are compiled for.
func TestTiledMatMulsMatchSource(t *testing.T) {
	entry := regexp.MustCompile(`(?m)^ENTRY\((\w+), (float|double), (\d+), \w+, (\d+), (\d+), (\w+)(?:<([\w, ]+)>)?\)$`)
	tensor := regexp.MustCompile(`(?s)__launch_bounds__\((\d+), \w+\) matmul_(\w+)\([^{]*\{\s*tensor<([\w, ]+)>\([^;]*?Product<(float|double), (\d+), (\d+)>`)
	found := map[string][]string{}
	for _, name := range []string{"matmul.cu", "matmul_tensor.cu"} {
		source, err := folder{files}.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range entry.FindAllStringSubmatch(string(source), -1) {
			found["matmul_"+m[1]] = m[2:]
		}
		for _, m := range tensor.FindAllStringSubmatch(string(source), -1) {
			found["matmul_"+m[2]] = []string{m[4], m[1], m[5], m[6], "tensor", m[3]}
		}
	}
	if len(found) != 2*len(matmuls) {
		t.Errorf("%d entry points, want %d", len(found), 2*len(matmuls))
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, types := range matmuls {
		for dt, v := range types {
			e := found[v.Kernel.Entry]
			if e == nil {
				t.Errorf("no entry point %s", v.Kernel.Entry)
				continue
			}
			if got, want := e[0], [2]string{"float", "double"}[dt]; got != want {
				t.Errorf("%s is for %s, want %s", v.Kernel.Entry, got, want)
			}
			if threads := int64(v.Block[0] * v.Block[1]); threads != number(e[1]) {
				t.Errorf("%s has %d threads in the plan, %s in the source", v.Kernel.Entry, threads, e[1])
			}
			if v.M != number(e[2]) || v.N != number(e[3]) {
				t.Errorf("%s has a tile of %d x %d in the plan, %s x %s in the source", v.Kernel.Entry, v.M, v.N, e[2], e[3])
			}
			want, args := 0, strings.Split(e[5], ",")
			switch e[4] {
			case "pipelined": // type, V, S: two stages
				want = pieces(kernels.Dtype(dt), v.M, v.N, number(args[2]), 2)
			case "warptiles": // warps down, warps across, S, stages
				want = pieces(kernels.Dtype(dt), v.M, v.N, number(args[2]), number(args[3]))
			case "tensor": // the same
				want = kept(kernels.Dtype(dt), v.M, v.N, number(args[2]), number(args[3]))
			}
			if v.Shared != want {
				t.Errorf("%s has %d bytes of shared memory in the plan, the source takes %d", v.Kernel.Entry, v.Shared, want)
			}
			if v.Shared > 64<<10 {
				t.Errorf("%s takes %d bytes of shared memory, 7.5 has 64 KiB", v.Kernel.Entry, v.Shared)
			}
		}
	}
}
