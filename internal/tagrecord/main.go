//go:build cuda

// Command tagrecord runs a test program that was built with the tag cuda, on a
// machine with a GPU, and records how it went, for bench/results/tag. Build it
// with the same settings as the program.
//
//	tagrecord FOLDER PROGRAM [ARGUMENTS]
//
// The record is FOLDER/<gpu>.json. The program must not skip what needs a GPU:
// it runs with STHENO_REQUIRE_GPU=1.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/compat"
	"github.com/stheno-ml/stheno/internal/results"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: tagrecord FOLDER PROGRAM [ARGUMENTS]")
		os.Exit(2)
	}
	if err := record(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "tagrecord:", err)
		os.Exit(1)
	}
}

// record runs the program and writes the record. A program that fails is
// recorded too, and is an error.
func record(folder, program string, args []string) error {
	devices, err := cudaops.Devices()
	if err != nil {
		return err
	}
	r := results.TagRecord{
		Versions: results.Versions{CUDA: compat.CUDA(), CUDNN: compat.CUDNN(), Go: runtime.Version()},
		Date:     time.Now().UTC().Format(time.DateOnly),
		GPU:      devices[0].Name,
		Driver:   devices[0].Driver,
		Run:      "PASS",
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this program does not know what it was built of")
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
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "STHENO_REQUIRE_GPU=1")
	failed := cmd.Run()
	if failed != nil {
		r.Run = failed.Error()
	}
	if err := results.WriteTag(filepath.Join(folder, results.Name(r.GPU)), []results.TagRecord{r}); err != nil {
		return err
	}
	return failed
}
