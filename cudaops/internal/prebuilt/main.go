// Command prebuilt assembles the generated kernels of common programs, listed in graphs.go, for every target of the images, with
// ptxas of the toolkit. Devices load these kernels; the driver compiles all others. Assembly is reproducible, so only
// new kernels are assembled.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/internal/maintain/toolkit"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

func main() {
	var b builder
	flag.StringVar(&b.out, "out", "kernels/prebuilt", "folder of the archives")
	toolkit := flag.String("toolkit", ".toolkit", "folder that the toolkit's wheels were unpacked into")
	check := flag.Bool("check", false, "write nothing: compare the archives with the kernels that the programs need, and assemble again for as long as -for allows")
	flag.DurationVar(&b.limit, "for", time.Minute, "how long -check goes on to assemble, in an order drawn at random")
	flag.IntVar(&b.workers, "j", 2, "assemble that many kernels at a time")
	command.Flags("prebuilt")
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	switch {
	case set["for"] && !*check:
		command.Exit("prebuilt", command.Misused("got -for without -check, want both"))
	case b.workers < 1:
		command.Exit("prebuilt", command.Misused("-j is %d, want at least 1", b.workers))
	}
	b.ptxas = filepath.Join(*toolkit, "nvidia/cuda_nvcc/bin/ptxas")
	command.Exit("prebuilt", b.run(*check))
}

// builder makes archives, or checks them.
type builder struct {
	out, ptxas string
	limit      time.Duration
	workers    int
}

// flags are the options of ptxas except the target.
var flags = []string{"-O3"}

func (b builder) run(check bool) error {
	assembler, err := b.version()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "prebuilt")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	do := b.build
	if check {
		do = b.check
	}
	start := time.Now()
	for i, target := range manifest.Targets {
		if target == manifest.PTX {
			continue
		}
		wanted, err := needed(target)
		if err != nil {
			return err
		}
		p := pass{b, target, assembler, wanted, scratch, start.Add(b.limit * time.Duration(i+1) / time.Duration(len(manifest.Targets)))}
		if err := do(p); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return nil
}

// version returns the assembler's version and options.
func (b builder) version() (string, error) {
	out, err := exec.Command(b.ptxas, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("no ptxas, `make toolkit` puts it there: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return "ptxas " + lines[len(lines)-1] + " " + strings.Join(flags, " "), nil
}

// pass is the work on one target.
type pass struct {
	builder
	target, assembler string
	wanted            map[string]code
	scratch           string
	until             time.Time // -check assembles until this time
}

func (p pass) file() string { return filepath.Join(p.out, manifest.ArchiveFile(p.target)) }

// build writes the archive of a target.
func (b builder) build(p pass) error {
	old, err := p.archive()
	if err != nil || old.Assembler != p.assembler {
		old = new(manifest.Archive) // assemble all kernels again
	}
	cubins, missing := map[string][]byte{}, []string(nil)
	for key := range p.wanted {
		cubin, err := old.Cubin(key)
		if err != nil || cubin == nil {
			missing = append(missing, key)
			continue
		}
		cubins[key] = cubin
	}
	var mu sync.Mutex
	err = errors.Join(toolkit.Each(missing, p.workers, func(key string) error {
		cubin, err := p.assemble(p.wanted[key].ptx, key)
		mu.Lock()
		defer mu.Unlock()
		cubins[key] = cubin
		return err
	})...)
	if err != nil {
		return err
	}
	data, err := manifest.WriteArchive(p.assembler, cubins)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d kernels, %d of them new, %d KiB\n", p.file(), len(cubins), len(missing), len(data)>>10)
	return os.WriteFile(p.file(), data, 0o666)
}

// check returns an error that names the kernels of a target's archive that are missing, not needed, or different when assembled
// again.
func (b builder) check(p pass) error {
	a, err := p.archive()
	if err != nil {
		return err
	}
	if err := complete(a, p.wanted); err != nil {
		return err
	}
	if a.Assembler != p.assembler {
		return fmt.Errorf("the kernels were assembled by %s, and this is %s", a.Assembler, p.assembler)
	}
	keys := a.Keys()
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var mu sync.Mutex
	done := 0
	err = errors.Join(toolkit.Each(keys, p.workers, func(key string) error {
		if time.Now().After(p.until) {
			return nil
		}
		again, err := p.assemble(p.wanted[key].ptx, key)
		if err != nil {
			return err
		}
		cubin, err := a.Cubin(key)
		if err == nil && !bytes.Equal(cubin, again) {
			err = fmt.Errorf("kernel %s: got other bytes than in the archive: %d, want %d", p.wanted[key].name, len(again), len(cubin))
		}
		mu.Lock()
		defer mu.Unlock()
		done++
		return err
	})...)
	fmt.Fprintf(os.Stderr, "%s: has the %d kernels that it should; assembled %d of them again\n", p.file(), len(keys), done)
	return err
}

// complete returns an error that names the kernels missing in an archive, and the number of kernels that are not needed.
func complete(a *manifest.Archive, wanted map[string]code) error {
	var errs []error
	extra := len(a.Keys())
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		switch cubin, err := a.Cubin(key); {
		case err != nil:
			errs = append(errs, err)
		case cubin == nil:
			errs = append(errs, fmt.Errorf("kernel %s of %s is not in the archive", wanted[key].name, wanted[key].graph))
		default:
			extra--
		}
	}
	if extra > 0 {
		errs = append(errs, fmt.Errorf("%d kernels are in the archive that no program needs", extra))
	}
	if len(errs) > 0 {
		return fmt.Errorf("run `make images`: %w", errors.Join(errs...))
	}
	return nil
}

// archive reads the archive of the target.
func (p pass) archive() (*manifest.Archive, error) {
	data, err := os.ReadFile(p.file())
	if err != nil {
		return nil, err
	}
	return manifest.ReadArchive(data)
}

// assemble returns the cubin of PTX.
func (p pass) assemble(ptx []byte, key string) ([]byte, error) {
	in := filepath.Join(p.scratch, p.target+key+".ptx")
	if err := os.WriteFile(in, ptx, 0o666); err != nil {
		return nil, err
	}
	defer os.Remove(in)
	defer os.Remove(in + ".cubin")
	args := append(slices.Clone(flags), "-arch="+p.target, "-o", in+".cubin", in)
	if out, err := exec.Command(p.ptxas, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", p.wanted[key].name, err, out)
	}
	return os.ReadFile(in + ".cubin")
}
