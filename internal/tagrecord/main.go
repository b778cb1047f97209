//go:build cuda

// Command tagrecord records a run of the suites that were built with the tag cuda,
// on a machine with a GPU, for bench/results/tag. Build it with the same settings
// as the suites.
//
//	tagrecord FOLDER SUITES
//
// SUITES is the file of suites of bench/gpu-run.sh, lines of name, result, seconds and note. Those
// whose names begin with "tag " count; FOLDER/NAME.log is the output of one, with -test.v and
// STHENO_REQUIRE_GPU=1. The record is FOLDER/<gpu>.json. Suites that results.TagOutcome misses are
// recorded too, and are an error.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/compat"
	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/results"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: tagrecord FOLDER SUITES")
		os.Exit(2)
	}
	r, err := record(os.Args[1], os.Args[2])
	if err == nil && r.Run != "PASS" {
		err = errors.New(r.Run)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tagrecord:", err)
		os.Exit(1)
	}
}

// record writes the record and returns it.
func record(folder, suites string) (r results.TagRecord, err error) {
	devices, err := cudaops.Devices()
	if err != nil {
		return r, err
	}
	tree, err := evidence.Tree()
	if err != nil {
		return r, err
	}
	r = results.TagRecord{
		Versions: results.Versions{CUDA: compat.CUDA(), CUDNN: compat.CUDNN(), Go: runtime.Version()},
		Date:     time.Now().UTC().Format(time.DateOnly),
		GPU:      devices[0].Name,
		Driver:   devices[0].Driver,
		Kernels:  tree,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return r, errors.New("this program has no record of the modules it was built of")
	}
	for path, to := range map[string]*string{
		"gorgonia.org/gorgonia": &r.Gorgonia, "gorgonia.org/cu": &r.CU, "gorgonia.org/tensor": &r.Tensor,
	} {
		for _, m := range info.Deps {
			if m.Path == path {
				*to = m.Version
			}
		}
	}
	all, err := results.ReadSuites(suites)
	if err != nil {
		return r, err
	}
	logs := map[string]string{}
	for _, s := range all {
		name, ok := strings.CutPrefix(s.Name, "tag ")
		if !ok {
			continue
		}
		log, err := os.ReadFile(filepath.Join(folder, name+".log"))
		if err != nil {
			return r, err
		}
		s.Name, logs[name] = name, string(log)
		r.Suites = append(r.Suites, s)
	}
	r.Run, r.Cases = results.TagOutcome(r.Suites, logs, opsOf)
	return r, results.WriteTag(filepath.Join(folder, results.Name(r.GPU)), []results.TagRecord{r})
}

// opsOf are the ops that a test must run.
func opsOf(test results.TagTest) (names []string) {
	for _, s := range opspec.All() {
		if test.Gradients && s.NoGradient || test.Floats && s.Exact {
			continue
		}
		names = append(names, s.Name)
	}
	return names
}
