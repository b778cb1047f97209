package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// benches are the subcommands of bench.
type benches struct {
	GPU    benchGPU    `cmd:"" name:"gpu" help:"Time every op on a GPU."`
	Host   benchHost   `cmd:"" help:"Time the ops on this machine's processor, beside Gorgonia's own."`
	Graphs benchGraphs `cmd:"" help:"Time whole graphs of Gorgonia's ops, on a GPU or on the processor."`
	Steps  benchSteps  `cmd:"" help:"Time whole training steps on a GPU."`
}

// selection holds the flags that choose among the cases of a bench. A list excludes the flags that it
// would ignore.
type selection struct {
	Run  pattern `placeholder:"REGEXP" help:"Time only the cases whose name, as --list prints it, has a match of this regular expression."`
	List bool    `xor:"runs,device,json,peers" help:"Time nothing: print the names of the cases."`
}

// timing holds the flags for how cases are timed.
type timing struct {
	Runs *count  `xor:"runs" placeholder:"N" help:"Timed runs of each case, fewer of those that take long (default: 30)."`
	Seed *uint64 `placeholder:"N" help:"Seed of the random inputs, which every bench prints (default: another one each time)."`
}

// runs returns the number of timed runs of a case.
func (t timing) runs() int { return int(given(t.Runs, 30)) }

// seed returns the seed to use.
func (t timing) seed() uint64 { return given(t.Seed, uint64(time.Now().UnixNano())) }

// given returns the value of a flag, or another value where the flag is not set.
func given[T any](flag *T, otherwise T) T {
	if flag == nil {
		return otherwise
	}
	return *flag
}

// onDevice is the flag that chooses a GPU.
type onDevice struct {
	Device *uint `xor:"device,where" placeholder:"N" help:"Number of the GPU, as the doctor lists them (default: 0)."`
}

// open returns the GPU to use. The error for a GPU that cannot be used ends with a hint.
func (d onDevice) open(hint string) (cudaops.Device, error) {
	devices, err := cudaops.Devices()
	if len(devices) == 0 {
		return cudaops.Device{}, fmt.Errorf("%w\n%s, and \"stheno doctor\" reports what is missing", err, hint)
	}
	number := given(d.Device, 0)
	if number >= uint(len(devices)) {
		return cudaops.Device{}, fmt.Errorf("--device: got %d, want one of the %d of this machine, numbered from 0: %w", number, len(devices), cudaops.ErrNoDevice)
	}
	if d := devices[number]; d.Err != nil {
		return cudaops.Device{}, fmt.Errorf("device %d cannot be used: %w\n%s", number, d.Err, hint)
	}
	return devices[number], nil
}

// pattern is a regular expression; the zero pattern matches everything.
type pattern struct{ *regexp.Regexp }

// UnmarshalText reads a pattern from the command line.
func (p *pattern) UnmarshalText(text []byte) (err error) {
	if p.Regexp, err = regexp.Compile(string(text)); err != nil {
		return fmt.Errorf("got %q, want a regular expression: %w", text, err)
	}
	return nil
}

// Matches reports whether a name matches.
func (p pattern) Matches(name string) bool { return p.Regexp == nil || p.MatchString(name) }

// count is a number of at least 1.
type count int

// UnmarshalText reads a count from the command line.
func (n *count) UnmarshalText(text []byte) error {
	value, err := strconv.Atoi(string(text))
	if err != nil || value < 1 {
		return fmt.Errorf("got %q, want a whole number from 1 on", text)
	}
	*n = count(value)
	return nil
}

// choose returns the cases whose names match; it is an error if there are none.
func (p pattern) choose(cases []maintain.Case) ([]maintain.Case, error) {
	chosen := slices.DeleteFunc(slices.Clone(cases), func(c maintain.Case) bool { return !p.Matches(caseName(c)) })
	if len(chosen) == 0 {
		return nil, usageErrorf("--run: got %q, which matches none of the %d cases, such as %q; --list prints their names", p, len(cases), caseName(cases[0]))
	}
	return chosen, nil
}

// choose returns the selected cases; with --list it prints their names. Only random cases depend on the seed.
func (s selection) choose(c *console, t timing, cases []maintain.Case) ([]maintain.Case, error) {
	cases, err := s.Run.choose(cases)
	if err != nil || !s.List {
		return cases, err
	}
	if t.Seed != nil {
		return nil, usageErrorf("got --seed with --list, want one of them: only cases of --random are drawn")
	}
	return cases, printNames(c.out, cases, caseName)
}

// printNames prints names, one a line.
func printNames[T any](w io.Writer, list []T, name func(T) string) error {
	for _, one := range list {
		if _, err := fmt.Fprintln(w, name(one)); err != nil {
			return err
		}
	}
	return nil
}

// onGPU holds the flags of a bench on a GPU.
type onGPU struct {
	selection
	timing
	onDevice
	JSON string `name:"json" xor:"json" placeholder:"FILE" type:"path" help:"Also write the results to this file; in a folder, to one named after the GPU."`
}

// benchGPU times every op on a GPU.
type benchGPU struct {
	onGPU
	Random   count   `xor:"random" placeholder:"N" help:"Time N cases with random sizes, shapes and parameters instead, the same ones for the same --seed; --run chooses among the names of the ops."`
	Most     float64 `placeholder:"MB" help:"With --random: the largest case, in megabytes of its inputs and output (default: 4000)."`
	Peers    string  `xor:"peers" placeholder:"FILE" type:"existingfile" help:"With --random: the times of other libraries on the same cases, which bench/peers.py wrote."`
	Check    bool    `xor:"random" help:"Time nothing: compare the small cases of every op with references in float64."`
	Versions bool    `help:"Time the numbered versions of the kernels too, which lead from the first idea to the fast one."`
}

func (benchGPU) Help() string {
	return `A line a case, as soon as it is measured:

  time      the median of the runs, by the GPU's clock, operands in its memory
  rate      bytes moved at least, or operations, by that time
  of copy   the rate as a share of the one at which the GPU copies its memory
  checked   how much of the result was compared with the host's, in float64
  error     the largest of an element, as a share of the error that the op allows

A wrong result is an error. On a machine without a GPU, see "stheno bench host".

With --random and --peers a column more says how many times as fast as the fastest other library Stheno
is, below 1 it is slower; then come the worst cases, percentiles for each op, and the large cases that are far from the
bandwidth:

  stheno bench gpu --random 500 --seed 7 --list > shapes.json
  python3 bench/peers.py shapes.json peers.json
  stheno bench gpu --random 500 --seed 7 --peers peers.json`
}

// Run times the ops.
func (b benchGPU) Run(c *console) error {
	if b.Random > 0 {
		return b.random(c)
	}
	if b.Most != 0 || b.Peers != "" {
		return usageErrorf("got --most or --peers without --random, want both: they are of random cases")
	}
	cases := maintain.Cases(records.Ops, b.Versions)
	if b.Check {
		cases = maintain.Checks()
	}
	return b.time(c, records.Ops, cases, "\"stheno bench host\" times the ops on this machine's processor")
}

// benchGraphs times whole graphs of Gorgonia's ops.
type benchGraphs struct{ onGPU }

func (benchGraphs) Help() string {
	return `Programs as users of Gorgonia write them: element-wise chains, softmax, layer norm, losses, networks
with their gradients. A line a graph, as soon as it is measured:

  time      the median of the launches, by the GPU's clock
  rate      bytes that must be moved, or operations, by that time
  of copy   the rate as a share of the one at which the GPU copies its memory
  checked   how much of the result was compared with a reference in float64
  error     the largest error, as a share of the error that the graph is allowed

then the launches of a run, and the time of a run with the copies from and to the host.`
}

// Run times the graphs.
func (b benchGraphs) Run(c *console) error {
	return b.time(c, records.Graphs, maintain.Cases(records.Graphs, false), "graphs are timed on one")
}

// benchSteps times whole training steps.
type benchSteps struct{ onGPU }

func (benchSteps) Help() string {
	return `Training steps of programs as users of Gorgonia write them, in one machine with the option cudaops.Train:
forward, loss, backward and the solver's update. A line a step, as soon as it is measured:

  time      the median of the launches of a step, by the GPU's clock, steps back to back;
            with the batch from the host, of a step in a loop of package train
  rate      operations, or bytes that must be moved, by that time
  of copy   the rate as a share of the one at which the GPU copies its memory
  checked   how many steps were held against those of the host backend
  error     how far a learnable is off, as a share of the error that is allowed

then the launches of a step, and the time of a call of RunAll, one after the other, the loss read
after every tenth.`
}

// Run times the steps.
func (b benchSteps) Run(c *console) error {
	return b.time(c, records.Steps, maintain.Cases(records.Steps, false), "training steps are timed on one")
}

// time times the selected cases of a set on a GPU, or prints their names. The error for a missing GPU ends with the hint.
func (o onGPU) time(c *console, set string, cases []maintain.Case, hint string) error {
	cases, err := o.choose(c, o.timing, cases)
	if err != nil || o.List {
		return err
	}
	gpu, err := o.open(hint)
	if err != nil {
		return err
	}
	_, err = measure(c, set, gpu, cases, o.timing, nil, o.JSON)
	return err
}

// caseName returns a case's name on the command line.
func caseName(c maintain.Case) string { return c.Key().String() }
