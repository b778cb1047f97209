package kernels

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The plans' tiles, blocks and shared memory are those that the entry points in
// matmul_versions.cu are compiled for.
func TestMatMulVersionsMatchSource(t *testing.T) {
	source, err := own.Source("matmul_versions.cu")
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`(?m)^ENTRY\((\w+), (float|double), (\d+), \w+, (\d+), (\d+), (\w+)(?:<([\w, ]+)>)?\)$`)
	found := map[string][]string{}
	for _, m := range entry.FindAllStringSubmatch(string(source), -1) {
		found["matmul_"+m[1]] = m[2:]
	}
	if len(found) != 2*len(matmulVersions) {
		t.Errorf("%d entry points, want %d", len(found), 2*len(matmulVersions))
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, version := range matmulVersions {
		for dt, v := range version {
			e := found[v.kernel.Entry]
			if e == nil {
				t.Errorf("no entry point %s", v.kernel.Entry)
				continue
			}
			if got, want := e[0], [2]string{"float", "double"}[dt]; got != want {
				t.Errorf("%s is for %s, want %s", v.kernel.Entry, got, want)
			}
			if threads := int64(v.block[0] * v.block[1]); threads != number(e[1]) {
				t.Errorf("%s has %d threads in the plan, %s in the source", v.kernel.Entry, threads, e[1])
			}
			if v.m != number(e[2]) || v.n != number(e[3]) {
				t.Errorf("%s has a tile of %d x %d in the plan, %s x %s in the source", v.kernel.Entry, v.m, v.n, e[2], e[3])
			}
			stages, s := int64(0), int64(0)
			args := strings.Split(e[5], ",")
			switch e[4] {
			case "pipelined": // type, V, S: two stages
				stages, s = 2, number(args[2])
			case "warptiles", "tensor": // warps down, warps across, S, stages
				stages, s = number(args[3]), number(args[2])
			}
			want := pieces(Dtype(dt), v.m, v.n, s, stages)
			if e[4] == "tensor" {
				if want > v.shared {
					t.Errorf("%s has %d bytes of shared memory in the plan, before sm_80 it takes %d", v.kernel.Entry, v.shared, want)
				}
				want = kept(Dtype(dt), v.m, v.n, s, stages)
			}
			if v.shared != want {
				t.Errorf("%s has %d bytes of shared memory in the plan, the source takes %d", v.kernel.Entry, v.shared, want)
			}
			if v.shared > 64<<10 {
				t.Errorf("%s takes %d bytes of shared memory, sm_75 has 64 KiB", v.kernel.Entry, v.shared)
			}
		}
	}
}

// A plan never asks for more blocks than a launch can have.
func TestVersionsGrid(t *testing.T) {
	dev := matmulDevices[1]
	if _, err := MatMulVersion(dev, Float32, 1, 1, 1<<20, 1<<20, 1, false, false); err == nil || !strings.Contains(err.Error(), "blocks") {
		t.Errorf("2^40 outputs by one thread each: %v", err)
	}
}
