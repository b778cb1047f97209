// Command conformance runs Gorgonia's own tests and examples and the ONNX operator tests
// of onnx-go on Gorgonia's tape machine and on Stheno in its place, compares the values of
// all nodes, and records the findings for docs/conformance.md. Run it in the root of the
// repository, or with make conformance.
//
// It copies the modules out of the module cache into a folder that git ignores, with a hook that
// lets Stheno stand in for a tape machine. It changes a few lines of examples that would take
// hours, need files to be downloaded, or train on the Lisp machine.
//
// For a GPU machine that has no Go, -pack writes a folder with the built programs and this one. There,
// conformance -run runs them, and -read records what they left in the folder.
package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

func main() {
	var c options
	flag.StringVar(&c.tree, "tree", ".conformance", "the folder of the copies")
	flag.StringVar(&c.only, "only", "", "run, or pack, the suites whose names begin so, and record nothing")
	flag.StringVar(&c.pack, "pack", "", "build for a GPU machine into this folder, and run nothing")
	flag.BoolVar(&c.run, "run", false, "run the suites of the working folder, which -pack made, on GPU 0, and record nothing")
	flag.StringVar(&c.read, "read", "", "record the results of the runs in this folder")
	flag.StringVar(&c.device, "device", "host", "the GPU that they ran on")
	command.Flags("conformance")
	command.Exit("conformance", c.do())
}

type options struct {
	tree, only, pack, read, device string
	run                            bool
}

func (c options) do() error {
	chosen := slices.DeleteFunc(slices.Clone(suites), func(s suite) bool { return !strings.HasPrefix(s.name, c.only) })
	if len(chosen) == 0 {
		return command.Misused("-only is %q, want the beginning of the name of a suite in internal/maintain/conformance/suites.go", c.only)
	}
	switch {
	case c.read != "":
		return c.record(c.read)
	case c.run:
		for i := range chosen {
			chosen[i].env = append(slices.Clone(chosen[i].env), "STHENO_REQUIRE_GPU=1")
			chosen[i].args = slices.Concat(chosen[i].args, chosen[i].without)
		}
		return runAll(".", chosen)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	if err := makeTree(c.tree, root); err != nil {
		return err
	}
	for _, s := range chosen {
		if err := s.build(c.tree); err != nil {
			return err
		}
	}
	if c.pack != "" {
		return pack(chosen, c.tree, c.pack)
	}
	if err := runAll(c.tree, chosen); err != nil || c.only != "" {
		return err
	}
	return c.record(c.tree)
}

// runAll runs suites, and prints a summary of each.
func runAll(tree string, chosen []suite) error {
	for _, s := range chosen {
		fmt.Print(s.name)
		for _, mode := range s.modes() {
			start := time.Now()
			if err := s.run(tree, mode); err != nil {
				return err
			}
			fmt.Printf(", %s %.1f s", mode, time.Since(start).Seconds())
		}
		o, err := s.outcome(tree)
		if err != nil {
			return err
		}
		fmt.Printf("\n    %v\n", o)
	}
	return nil
}

// record writes the results of the runs in a folder, and the page.
func (c options) record(dir string) error {
	hook, err := digest()
	if err != nil {
		return err
	}
	r := Record{
		Device: c.device, Date: time.Now().UTC().Format(time.DateOnly),
		Gorgonia: modules["gorgonia"].version, ONNX: modules["onnx-go"].version, Hook: hook,
	}
	var errs []error
	for _, s := range suites {
		o, err := s.outcome(dir)
		if err != nil {
			return err
		}
		r.Suites = append(r.Suites, o)
		errs = append(errs, o.faults())
	}
	if err := r.write(filepath.Join(recordsFolder, records.Name(r.Device))); err != nil {
		return err
	}
	return errors.Join(append(errs, updatePage())...)
}
