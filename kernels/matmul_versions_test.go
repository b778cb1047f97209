package kernels

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The plans' tiles, blocks and shared memory are those that the entry points in
// matmul_versions.cu and matmul_tensor.cu are compiled for.
func TestTiledMatMulsMatchSource(t *testing.T) {
	entry := regexp.MustCompile(`(?m)^ENTRY\((\w+), (float|double), (\d+), \w+, (\d+), (\d+), (\w+)(?:<([\w, ]+)>)?\)$`)
	found := map[string][]string{}
	for _, name := range []string{"matmul_versions.cu", "matmul_tensor.cu"} {
		source, err := Source(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range entry.FindAllStringSubmatch(string(source), -1) {
			found["matmul_"+m[1]] = m[2:]
		}
	}
	all := append(matmulVersions[:], matmulTensor)
	if len(found) != 2*len(all) {
		t.Errorf("%d entry points, want %d", len(found), 2*len(all))
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, types := range all {
		for dt, v := range types {
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
			want, args := 0, strings.Split(e[5], ",")
			switch e[4] {
			case "pipelined": // type, V, S: two stages
				want = pieces(Dtype(dt), v.m, v.n, number(args[2]), 2)
			case "warptiles": // warps down, warps across, S, stages
				want = pieces(Dtype(dt), v.m, v.n, number(args[2]), number(args[3]))
			case "tensor": // the same
				want = tensorShared(Dtype(dt), v.m, v.n, number(args[2]), number(args[3]))
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
	if _, err := AddVersion(dev, Float32, 1, 1<<41); err == nil || !strings.Contains(err.Error(), "blocks") {
		t.Errorf("2^41 elements by one thread each: %v", err)
	}
	for version := 1; version <= 2; version++ {
		if _, err := WindowSumVersion(dev, Float32, version, 1, 1<<41, 2, WindowValid); err == nil || !strings.Contains(err.Error(), "blocks") {
			t.Errorf("2^41 windows by version %d: %v", version, err)
		}
		p, err := WindowSumVersion(dev, Float64, version, 3, 1000, 10000, WindowSame)
		if err != nil || p.Launches[0].Shared > 48<<10 || p.Launches[0].Grid[0] > math.MaxInt32 {
			t.Errorf("wide windows by version %d: %v, %v", version, p, err)
		}
	}
}
