// Command conformance runs Gorgonia's own tests and examples and the ONNX operator tests
// of onnx-go on Gorgonia's tape machine and on Stheno in its place, compares the values of
// all nodes, and records the findings for docs/conformance.md. Run it in the root of the
// repository, or with make conformance.
//
// It copies the modules out of the module cache into a folder that git ignores, with a hook that
// lets Stheno stand in for a tape machine. It changes a few lines of examples that would take
// hours, need files to be downloaded, or train on the Lisp machine.
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
	flag.StringVar(&c.only, "only", "", "run, or pack, the suite of this name, or those whose names begin so, and record nothing")
	flag.StringVar(&c.pack, "pack", "", "build for a GPU machine into this folder, and run nothing")
	flag.StringVar(&c.target, "target", "sm_90a", "the target whose images are packed")
	flag.StringVar(&c.read, "read", "", "record the results that the packed runs left in this folder")
	flag.StringVar(&c.device, "device", "host", "the GPU that they ran on")
	command.Flags("conformance")
	command.Exit("conformance", c.do())
}

type options struct{ tree, only, pack, target, read, device string }

func (c options) do() error {
	if c.read != "" {
		return c.record(c.read)
	}
	chosen := slices.DeleteFunc(slices.Clone(suites), func(s suite) bool { return !strings.HasPrefix(s.name, c.only) })
	if i := slices.IndexFunc(chosen, func(s suite) bool { return s.name == c.only }); i >= 0 {
		chosen = chosen[i : i+1]
	}
	if len(chosen) == 0 {
		var names []string
		for _, s := range suites {
			names = append(names, s.name)
		}
		return command.Misused("-only is %q, want one of %s, or the beginning of one", c.only, strings.Join(names, "; "))
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	if err := makeTree(c.tree, root); err != nil {
		return err
	}
	var flags []string
	if c.pack != "" {
		overlay, err := withoutImages(c.tree, root, c.target)
		if err != nil {
			return err
		}
		flags = []string{"-overlay", overlay}
	}
	var built []string
	for _, s := range chosen {
		start := time.Now()
		if binary := s.binary(c.tree); !slices.Contains(built, binary) {
			if err := s.build(c.tree, flags...); err != nil {
				return err
			}
			built = append(built, binary)
		}
		fmt.Printf("%s: built in %.0f s", s.name, time.Since(start).Seconds())
		for _, mode := range s.modes() {
			if c.pack != "" {
				continue
			}
			start := time.Now()
			if err := s.run(c.tree, mode); err != nil {
				return err
			}
			fmt.Printf(", %s %.1f s", mode, time.Since(start).Seconds())
		}
		fmt.Println()
		if c.pack == "" {
			o, err := s.outcome(c.tree)
			if err != nil {
				return err
			}
			fmt.Println("   ", o)
		}
	}
	switch {
	case c.pack != "":
		return pack(chosen, c.tree, c.pack)
	case c.only != "":
		return nil
	}
	return c.record(c.tree)
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
