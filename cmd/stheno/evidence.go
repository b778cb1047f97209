package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"

	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/results"
)

// evidenceCommand compares what has run on GPUs with the kernels of this build.
func evidenceCommand(args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("evidence", flag.ContinueOnError)
	recorded := f.String("recorded", filepath.Join("bench", "results"), "folder of the recorded results")
	list := f.Bool("list", false, "list the suites that must run on this machine's GPU, for bench/gpu-run.sh: name, tool, test program, -test.run or -, part and kernels, with tabs between them")
	all := f.Bool("all", false, "let -list count nothing that is recorded")
	suites := f.String("suites", "", "let -list leave out what has passed according to this file, which bench/gpu-run.sh wrote")
	gpu := f.String("gpu", "", "name of the GPU for -list, if it is not this machine's first")
	merge := f.String("merge", "", "add this file of results, from bench/gpu-run.sh, to the recorded ones")
	if err := parse(f, args, stderr); err != nil {
		return err
	}
	switch {
	case *merge != "":
		return mergeResults(*merge, *recorded)
	case *list:
		return listSuites(stdout, *recorded, *gpu, *suites, *all)
	}
	files, err := results.ReadDir(*recorded)
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		stale, unmeasured := evidence.Check(file)
		errs = append(errs, stale, unmeasured)
		if stale == nil && unmeasured == nil {
			fmt.Fprintf(stdout, "%s: everything has run with these kernels\n", file.GPU)
		}
	}
	return errors.Join(errs...)
}

// listSuites prints the suites that must run on a GPU.
func listSuites(stdout io.Writer, recorded, gpu, outcomes string, all bool) error {
	if gpu == "" {
		device, err := deviceOf(0)
		if err != nil {
			return err
		}
		gpu = device.Name
	}
	file, err := evidence.Recorded(recorded, gpu)
	if err != nil {
		return err
	}
	if all {
		file = &results.File{}
	}
	var passed []results.Suite
	if outcomes != "" {
		if passed, err = results.ReadSuites(outcomes); err != nil {
			return err
		}
	}
	wanted, err := evidence.Suites()
	if err != nil {
		return err
	}
	for _, s := range wanted {
		if s.State(file.Suites) != evidence.Current && !s.In(passed) {
			fmt.Fprintf(stdout, "%s\t%s\t%s\t%s\t%d/%d\t%v\n", s.Name(), s.Tool, s.Binary, cmp.Or(s.Run, "-"), s.Part, s.Parts, s.Kernels)
		}
	}
	return nil
}

// mergeResults adds a file to the recorded results of its GPU.
func mergeResults(path, recorded string) error {
	later, err := results.Read(path)
	if err != nil {
		return err
	}
	file, err := evidence.Recorded(recorded, later.GPU)
	if err != nil {
		return err
	}
	if err := file.Merge(later); err != nil {
		return err
	}
	return file.Write(filepath.Join(recorded, results.Name(later.GPU)))
}
