package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// record checks and times the ops on a GPU for a file of results.
type record struct {
	onDevice
	Out   string        `short:"o" required:"" placeholder:"FILE" type:"path" help:"File to write the results to."`
	Limit time.Duration `default:"5m" help:"Time for everything (default: ${default})."`
}

func (record) Help() string {
	return `Compares the cases of every op with references in float64, and times the cases of the tables beside the bandwidth of a
copy and the least traffic. The file has the GPU's name and properties, the versions of the driver and of Go, and the
results: no name of a host or a user. In bench/results/ops of the repository it becomes a part of docs/speed.md.

Each op runs in a process of its own. A kernel that fails, or that ends its process or hangs, is a line of the file.`
}

// Run records.
func (r record) Run(c *console) error {
	gpu, err := r.open("records are made on one")
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	part := filepath.Join(os.TempDir(), fmt.Sprintf("stheno-record-%d.json", os.Getpid()))
	return r.collect(c, newFile(records.Ops, gpu, newRun(gpu)), func(ctx context.Context, run string, flags ...string) (*records.File, error) {
		defer os.Remove(part)
		args := append([]string{"bench", "gpu", "--run", run, "--device", fmt.Sprint(given(r.Device, 0)), "--json", part}, flags...)
		bench := exec.CommandContext(ctx, program, args...)
		var failures strings.Builder
		bench.Stdout, bench.Stderr = c.out, &failures
		err := bench.Run()
		f, unwritten := records.Read(part)
		if unwritten != nil {
			f = nil
		}
		if text := strings.TrimSpace(failures.String()); err != nil && text != "" {
			err = errors.New(strings.TrimPrefix(text, "stheno bench gpu: "))
		}
		return f, err
	})
}

// most is the time that the cases of one op may take: what takes longer hangs.
const most = time.Minute

// collect records the cases of one op after the other by a bench of those whose names a regular expression matches. It writes the file
// after each op. Cases for which no time is left are none of the file.
func (r record) collect(c *console, file *records.File, bench func(ctx context.Context, run string, flags ...string) (*records.File, error)) error {
	end, left := time.Now().Add(r.Limit), 0
	for _, set := range []struct {
		cases []maintain.Case
		flags []string
	}{{maintain.Checks(), []string{"--check"}}, {maintain.Cases(records.Ops, false), nil}} {
		for _, some := range byOp(set.cases) {
			until := time.Now().Add(most)
			last := end.Before(until)
			if last {
				until = end
			}
			ctx, stop := context.WithDeadline(context.Background(), until)
			if ctx.Err() != nil {
				stop()
				left += len(some)
				continue
			}
			later, err := bench(ctx, "^"+regexp.QuoteMeta(some[0].Key().Op)+"/", set.flags...)
			late := ctx.Err() != nil
			stop()
			if later == nil {
				later = &records.File{Set: file.Set, GPU: file.GPU}
			} else if file.Runs[0].Copy == 0 {
				file.Runs = later.Runs
			}
			later.Runs = file.Runs // one for all processes
			missing := slices.DeleteFunc(slices.Clone(some), func(one maintain.Case) bool { _, has := later.Local(one.Key()); return has })
			why := fmt.Sprintf("no result within %v", most)
			switch {
			case late && last:
				left, missing = left+len(missing), nil
			case !late:
				why = firstLine(fmt.Errorf("the process ended: %w", err))
			}
			for _, one := range missing {
				later.Records = append(later.Records, records.Record{Kind: records.Fault, Key: one.Key(), Note: why})
			}
			if err := file.Merge(later); err != nil {
				return err
			}
			if err := file.Write(r.Out); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(c.out, "\nwrote %s: %d ops are right, %d cases are timed, %d failed", r.Out, len(file.Of(records.Check)), len(file.Of(records.Time)), len(file.Of(records.Fault)))
	if left > 0 {
		fmt.Fprintf(c.out, "; no time was left for %d cases", left)
	}
	fmt.Fprintln(c.out)
	return nil
}

// byOp divides cases into those of one op each, which follow one another.
func byOp(cases []maintain.Case) (groups [][]maintain.Case) {
	for i, one := range cases {
		if i == 0 || one.Key().Op != cases[i-1].Key().Op {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], one)
	}
	return groups
}

// firstLine returns the first line of an error's text.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// newRun describes a run on a device.
func newRun(d cudaops.Device) records.Run {
	return records.Run{Driver: d.Driver, CUDA: d.CUDA, Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly), Calibration: d.Calibration.Name()}
}

// newFile returns a file without records.
func newFile(set string, d cudaops.Device, run records.Run) *records.File {
	return &records.File{Set: set, GPU: d.Name, Compute: fmt.Sprintf("%d.%d", d.Major, d.Minor), SMs: d.SMs, L2: d.L2, Memory: d.Memory, Runs: []records.Run{run}}
}
