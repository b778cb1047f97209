// Command tagmatrix builds and vets everything with Gorgonia's tag cuda, on a
// machine with no GPU, against every CUDA and cuDNN of toolkit.Releases. Run it
// in the root of the repository.
//
//	tagmatrix                          all releases, into bench/results/tag/built.json and docs/cuda-versions.md
//	tagmatrix -only 12.4-cudnn8,...    some of them; the others' results stay
//	tagmatrix -install 13.0-cudnn9     only install the wheels, into .cuda
//	tagmatrix -docs                    only write the tables, from all of bench/results/tag
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/internal/toolkit"
)

const (
	resultsDir = "bench/results/tag"
	builtFile  = resultsDir + "/built.json"
	docsFile   = "docs/cuda-versions.md"
	pageFile   = "docs/cuda-tag.md"
)

func main() {
	only := flag.String("only", "", "build with these `releases` alone, with commas between")
	installOnly := flag.String("install", "", "install this `release` and stop")
	docsOnly := flag.Bool("docs", false, "only write the tables")
	command.Flags("tagmatrix")
	var err error
	switch {
	case *installOnly != "":
		var r toolkit.Release
		if r, err = named(*installOnly); err == nil {
			_, _, err = install(r)
		}
	case *docsOnly:
		err = writeDocs()
	default:
		err = matrix(*only)
	}
	command.Exit("tagmatrix", err)
}

// named returns the release that a flag names.
func named(name string) (toolkit.Release, error) {
	r, err := toolkit.ReleaseNamed(name)
	if err != nil {
		err = command.Misused("%w", err)
	}
	return r, err
}

// matrix tries the releases, and fails if one of them fails.
func matrix(only string) error {
	releases := toolkit.Releases
	if only != "" {
		releases = nil
		for name := range strings.SplitSeq(only, ",") {
			r, err := named(name)
			if err != nil {
				return err
			}
			releases = append(releases, r)
		}
	}
	var failed []error
	for _, r := range releases {
		record, err := try(r)
		if err == nil {
			err = keep(record)
		}
		if err == nil && record.Build != "PASS" {
			err = errors.New(record.Build)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.Name(), err))
		}
		fmt.Printf("%s: CUDA %s, cuDNN %s: %s\n", r.Name(), record.CUDA, record.CUDNN, cmp.Or(record.Build, "not tried"))
	}
	return errors.Join(append(failed, writeDocs())...)
}

// try builds and vets with one release. It removes wheels that it installed: each release takes 1
// to 2 GB.
func try(r toolkit.Release) (record results.TagRecord, err error) {
	dir, installed, err := install(r)
	if err != nil {
		return record, err
	}
	if installed {
		defer os.RemoveAll(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return record, err
	}
	const cc = "gcc"
	t, err := toolkit.Find([]string{dir}, nil)
	if err != nil {
		return record, err
	}
	settings, err := t.Prepare(filepath.Join(cache, "stheno"), cc)
	if err != nil {
		return record, err
	}
	if err := t.Check(settings, cc); err != nil {
		return record, err
	}
	environ, err := settings.Environ()
	if err != nil {
		return record, err
	}
	versions, err := moduleVersions()
	if err != nil {
		return record, err
	}
	versions.CUDA, versions.CUDNN = t.CUDA, t.CUDNN
	record = results.TagRecord{Versions: versions, Date: time.Now().UTC().Format(time.DateOnly), Build: "PASS"}
	for _, verb := range []string{"build", "vet"} {
		cmd := exec.Command("go", verb, "-tags", "cuda", "./...")
		cmd.Env = append(os.Environ(), environ...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			os.Stderr.Write(out)
			record.Build = fmt.Sprintf("go %s: %s", verb, firstError(out, err))
			break
		}
	}
	return record, nil
}

// install installs a release's wheels into its folder of .cuda, unless they are there.
func install(r toolkit.Release) (dir string, installed bool, err error) {
	dir = filepath.Join(".cuda", r.Name())
	stamp := filepath.Join(dir, "wheels.txt")
	want := strings.Join(r.Wheels, "\n") + "\n"
	if got, err := os.ReadFile(stamp); err == nil && string(got) == want {
		return dir, false, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", false, err
	}
	fmt.Fprintf(os.Stderr, "tagmatrix: installing %s\n", strings.Join(r.Wheels, " "))
	args := r.Install(dir)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		os.RemoveAll(dir)
		return "", false, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return dir, true, os.WriteFile(stamp, []byte(want), 0o666)
}

// moduleVersions asks the go command.
func moduleVersions() (results.Versions, error) {
	v := results.Versions{Go: runtime.Version()}
	for path, to := range map[string]*string{
		"gorgonia.org/gorgonia": &v.Gorgonia, "gorgonia.org/cu": &v.CU, "gorgonia.org/tensor": &v.Tensor,
	} {
		out, err := exec.Command("go", "list", "-m", "-json", path).Output()
		if err != nil {
			return v, fmt.Errorf("go list -m %s: %w", path, err)
		}
		var m struct{ Version string }
		if err := json.Unmarshal(out, &m); err != nil {
			return v, err
		}
		*to = m.Version
	}
	return v, nil
}

// firstError is the first line of output that is not a package's headline.
func firstError(out []byte, err error) string {
	for line := range bytes.Lines(out) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return string(line)
		}
	}
	return err.Error()
}

// keep puts a record in place of the one with the same CUDA and cuDNN.
func keep(record results.TagRecord) error {
	var records []results.TagRecord
	if text, err := os.ReadFile(builtFile); err == nil {
		if err := json.Unmarshal(text, &records); err != nil {
			return fmt.Errorf("%s: %w", builtFile, err)
		}
	}
	records = slices.DeleteFunc(records, func(r results.TagRecord) bool {
		return r.CUDA == record.CUDA && r.CUDNN == record.CUDNN
	})
	return results.WriteTag(builtFile, append(records, record))
}

// writeDocs writes the tables of all records, and that of the programs.
func writeDocs() error {
	records, err := results.ReadTag(resultsDir)
	if err != nil {
		return err
	}
	return errors.Join(
		rewrite(docsFile, func(text string) (string, error) {
			text, err := results.UpdateTag(text, records)
			if err != nil {
				return "", err
			}
			return results.UpdateCases(text, records)
		}),
		rewrite(pageFile, func(text string) (string, error) {
			programs, err := os.ReadFile(results.ProgramsFile)
			if err != nil {
				return "", err
			}
			return results.UpdatePrograms(text, string(programs))
		}))
}

func rewrite(file string, update func(string) (string, error)) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := update(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o666)
}
