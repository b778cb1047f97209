package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

func benchCommand(args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	number := f.Int("device", 0, "number of the CUDA device")
	pattern := f.String("run", "", "time only the cases whose op/case/dtype this regular expression matches")
	runs := f.Int("runs", 30, "timed runs of each case, of which the median counts")
	seed := f.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random inputs")
	file := f.String("json", "", "write the results to this file; a folder gets a file named after the GPU")
	peers := f.String("peers", "", "merge the times of other libraries that bench/peers.py wrote to this file")
	suites := f.String("suites", "", "merge the outcomes of test suites that bench/gpu-run.sh wrote to this file")
	text := f.String("text", "", "time the histogram of this text too, repeated to 5.8 MB")
	versions := f.Bool("versions", false, "time the numbered versions of the ops too")
	host := f.Bool("host", false, "time the host bodies against Gorgonia's own ops on the CPU instead")
	readme := f.Bool("readme", false, "measure nothing: rewrite the speed table of README.md, in this folder, from bench/results")
	if err := parse(f, args, stderr); err != nil {
		return err
	}
	selected, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *runs < 1 {
		return fmt.Errorf("-runs: got %d, want at least 1", *runs)
	}
	switch {
	case *readme:
		return rewriteReadme()
	case *host:
		return benchHost(stdout, selected, *runs)
	}

	devices, err := cudaops.Devices()
	if err != nil {
		return err
	}
	if *number < 0 || *number >= len(devices) {
		return fmt.Errorf("-device: %w %d: this machine has %d, numbered from 0", cudaops.ErrNoDevice, *number, len(devices))
	}
	device := devices[*number]
	r := describe(device)
	if *peers != "" {
		if r.Peers, err = results.ReadPeers(*peers); err != nil {
			return err
		}
	}
	if *suites != "" {
		if r.Suites, err = results.ReadSuites(*suites); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%s, driver %s (CUDA %s), kernels %.12s, seed %d\n", r.GPU, r.Driver, r.CUDA, r.Digest, *seed)
	if r.Copy, err = cudaops.CopyBandwidth(device.Ordinal); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "device copy %.0f GB/s, read and write counted\n\n", r.Copy)
	path := *file
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, results.Name(r.GPU))
	}
	save := func() error { return nil }
	if path != "" {
		save = func() error { return r.Write(path) }
	}
	cases := timedCases(selected, *versions)
	if *text != "" {
		c, err := textCase(*text)
		if err != nil {
			return err
		}
		if selected.MatchString(c.key().String()) {
			cases = append(cases, c)
		}
	}
	failures := benchDevice(stdout, r, device, cases, *runs, *seed, save)
	for _, p := range r.Unmatched() {
		if selected.MatchString(p.Key.String()) {
			failures = append(failures, fmt.Errorf("peer %s times %v, which is no case or failed", p.By, p.Key))
		}
	}
	if path != "" {
		fmt.Fprintf(stdout, "\nwrote %s\n", path)
	}
	return errors.Join(append(failures, save())...)
}

// describe is a results file without measurements.
func describe(d cudaops.Device) *results.File {
	return &results.File{
		GPU: d.Name, Compute: fmt.Sprintf("%d.%d", d.Major, d.Minor), SMs: d.SMs, L2: d.L2, Memory: d.Memory,
		Driver: d.Driver, CUDA: d.CUDA, Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly),
		Digest: kernels.Digest(),
		Rows:   []results.Row{}, Peers: []results.Peer{}, Suites: []results.Suite{},
	}
}

// benchDevice times the selected cases, adds them to r and prints them, saving r
// after each, for a run that is cut off. It goes on after a failure.
func benchDevice(w io.Writer, r *results.File, device cudaops.Device, cases []timedCase, runs int, seed uint64, save func() error) (failures []error) {
	const format = "%-32s %9s %15s %8s %8s  %-8s %s\n" // lines come as they are measured
	fmt.Fprintf(w, format, "case", "time", "rate", "of copy", "of peer", "checked", "error / allowed")
	block := newRandomBlock(seed)
	for _, c := range cases {
		row, err := c.measure(device, block, runs)
		runtime.GC() // gigabytes of operands
		if err != nil {
			fmt.Fprintf(w, "%-32s failed: %v\n", c.key(), err)
			failures = append(failures, fmt.Errorf("%v: %w", c.key(), err))
			continue
		}
		r.Rows = append(r.Rows, row)
		if err := save(); err != nil {
			return append(failures, err)
		}
		fmt.Fprintf(w, format, row.Key, results.Micros(row.Micros), row.Rate(), r.OfCopy(row), r.OfPeer(row), row.Check, fmt.Sprintf("%.2g", row.Error))
	}
	return failures
}

// timedCase is a case of an op in one element type.
type timedCase struct {
	spec  opspec.Spec
	c     opspec.Case
	dtype kernels.Dtype
}

func (c timedCase) key() results.Key {
	return results.Key{Op: c.spec.Name, Case: c.c.Name, Dtype: c.dtype.String()}
}

// timedCases are the timed cases that are selected, in the types that they name.
// The cases of numbered versions are among them if wanted.
func timedCases(selected *regexp.Regexp, versions bool) (cases []timedCase) {
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			if c.Version > 0 && !versions {
				continue
			}
			for _, dt := range c.Timed {
				if timed := (timedCase{s, c, dt}); selected.MatchString(timed.key().String()) {
					cases = append(cases, timed)
				}
			}
		}
	}
	return cases
}

// textCase is the histogram of the bytes of a text, which is repeated to the length
// of the text that a well-known listing counts.
func textCase(path string) (timedCase, error) {
	const size = 5_800_000
	text, err := os.ReadFile(path)
	if err != nil {
		return timedCase{}, fmt.Errorf("-text: %w", err)
	}
	if len(text) == 0 {
		return timedCase{}, fmt.Errorf("-text: %s is empty", path)
	}
	bytes := timedCases(regexp.MustCompile(`^Histogram/2\^30 bytes/`), false)[0]
	bytes.c.Name = "5.8 MB of text"
	bytes.c.Shapes = []tensor.Shape{{size}}
	bytes.c.Fill = func(operand []byte) {
		for i := 0; i < len(operand); i += copy(operand[i:], text) {
		}
	}
	return bytes, nil
}

// measure times the case on the device and holds the output of the last timed
// run against the host.
func (c timedCase) measure(device cudaops.Device, block randomBlock, runs int) (results.Row, error) {
	plan, _, err := c.c.Plan(c.dtype, device.Device)
	if err != nil {
		return results.Row{}, err
	}
	inputs := make([][]byte, len(plan.Inputs))
	for i, n := range plan.Inputs {
		if c.c.Fill != nil {
			inputs[i] = make([]byte, n)
			c.c.Fill(inputs[i])
			continue
		}
		inputs[i] = block.fill(c.dtype, n, i)
	}
	timing, err := cudaops.Time(device.Ordinal, plan, inputs, runs)
	if err != nil {
		return results.Row{}, err
	}
	slices.Sort(timing.Runs)
	row := results.Row{
		Key: c.key(), Version: int(c.c.Version), Bytes: plan.Bytes(), Flops: plan.Flops, Runs: len(timing.Runs),
		Micros: micros(timing.Runs[len(timing.Runs)/2]), Min: micros(timing.Runs[0]), Max: micros(timing.Runs[len(timing.Runs)-1]),
	}
	if row.Check, row.Error, err = c.check(plan, inputs, timing.Out, affordable); err != nil {
		return results.Row{}, err
	}
	if !(row.Error <= 1) {
		return results.Row{}, fmt.Errorf("wrong result: an element of %s is off by %.3g times what the op allows", row.Check, row.Error)
	}
	return row, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// rewriteReadme rewrites the speed table of README.md.
func rewriteReadme() error {
	files, err := results.ReadDir(filepath.Join("bench", "results"))
	if err != nil {
		return err
	}
	old, err := os.ReadFile("README.md")
	if err != nil {
		return fmt.Errorf("%w (bench -readme runs in the repository's root)", err)
	}
	text, err := results.UpdateReadme(string(old), files)
	if err != nil {
		return fmt.Errorf("README.md: %w", err)
	}
	return os.WriteFile("README.md", []byte(text), 0o644)
}
