package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels"
)

// drawing holds the flags of a bench of randomly drawn cases.
type drawing struct {
	Random count     `placeholder:"N" help:"Time N cases with sizes, shapes and parameters drawn at random instead, the same ones for the same --seed; --run chooses among the names of the ops."`
	Most   megabytes `placeholder:"MB" help:"With --random: the largest case, in megabytes of its inputs and output (default: 4000 on a GPU, 64 on the host)."`
	Plot   string    `xor:"plot" placeholder:"FILE" type:"path" help:"With --random: draw the times of all cases into this .svg or .png file."`
}

// refuse returns an error if a flag would do nothing without --random.
func (d drawing) refuse() error {
	switch {
	case d.Most != 0:
		return usageErrorf("got --most without --random, want both: the other cases have their sizes")
	case d.Plot != "":
		return usageErrorf("got --plot without --random, want both: a plot is of drawn cases")
	}
	return nil
}

// cases draws the cases.
func (d drawing) cases(ops pattern, seed uint64, limits opspec.Limits) ([]opspec.Drawn, error) {
	if d.Plot != "" && !slices.Contains(figure.Formats, filepath.Ext(d.Plot)) {
		return nil, usageErrorf("--plot: got %s, want a name that ends in %s", d.Plot, strings.Join(figure.Formats, " or "))
	}
	if d.Most != 0 {
		limits.Most = int64(1e6 * d.Most)
		if limits.Most < 2*limits.Least {
			return nil, usageErrorf("--most: got %g megabytes, want at least %g", float64(d.Most), 2*float64(limits.Least)/1e6)
		}
	}
	all := opspec.All()
	specs := slices.DeleteFunc(slices.Clone(all), func(s opspec.Spec) bool { return !ops.Matches(s.Name) })
	if len(specs) == 0 {
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		return nil, usageErrorf("--run: got %q, which matches none of the ops %s", ops, strings.Join(names, ", "))
	}
	return opspec.Draw(int(d.Random), seed, limits, specs)
}

// random times drawn cases on a GPU.
func (b benchGPU) random(c *console) error {
	if b.Versions {
		return usageErrorf("got --versions with --random, want one of them: drawn cases are of the ops themselves")
	}
	seed := b.seed()
	drawn, err := b.drawing.cases(b.selection.Run, seed, opspec.Limits{Least: 1e3, Most: 4e9, Flops: 2e13})
	if err != nil {
		return err
	}
	if b.List {
		return describeCases(c.out, maintain.Drawn(drawn))
	}
	device, err := deviceOf(b.device(), "\"stheno bench host --random\" times drawn cases on this machine's processor")
	if err != nil {
		return err
	}
	peers, err := peersOf(c, b.Peers, drawn)
	if err != nil {
		return err
	}
	m, err := onGPU(c, records.Drawn, device, maintain.Drawn(drawn), b.runs(), seed)
	if err != nil {
		return err
	}
	m.path, m.file.Records = b.JSON, append(m.file.Records, peers...)
	return errors.Join(m.run(c), conclude(c, m.file, b.Plot))
}

// random times drawn cases on the host.
func (b benchHost) random(c *console) error {
	seed := b.seed()
	drawn, err := b.drawing.cases(b.selection.Run, seed, opspec.Limits{Least: 1e3, Most: 64e6, Flops: 2e9})
	if err != nil {
		return err
	}
	if b.List {
		return describeCases(c.out, maintain.Drawn(drawn))
	}
	cores := fmt.Sprintf("%d cores", runtime.GOMAXPROCS(0))
	f := &records.File{Set: records.Drawn, GPU: cores, Runs: []records.Run{{Copy: hostCopy(), Seed: seed}}}
	fmt.Fprintf(c.out, "the host's %s, copy %.1f GB/s, read and write counted; seed %d\n\n", cores, f.Head().Copy, seed)
	block := maintain.NewBlock(seed, maintain.BlockOfHost)
	m := measurement{file: f, cases: maintain.Drawn(drawn), time: func(one maintain.Case) ([]records.Record, error) {
		return one.(maintain.Op).MeasureOnHost(block, b.runs())
	}}
	return errors.Join(m.run(c), conclude(c, f, b.Plot))
}

// hostCopy is the bandwidth of a copy on all cores in GB/s, read and write counted.
func hostCopy() float64 {
	const size = 64 << 20
	from, to := make([]byte, size), make([]byte, size)
	best := time.Duration(math.MaxInt64)
	for range 6 { // the first run allocates
		start := time.Now()
		kernels.Parallel(size, 1<<20, func(lo, hi int64) { copy(to[lo:hi], from[lo:hi]) })
		best = min(best, time.Since(start))
	}
	return 2 * size / float64(max(best, 1))
}

// peersOf reads the times of other libraries, or runs a script that measures them.
func peersOf(c *console, path string, drawn []opspec.Drawn) ([]records.Record, error) {
	if path == "" {
		return nil, nil
	}
	if filepath.Ext(path) != ".py" {
		return records.ReadPeers(path)
	}
	dir, err := os.MkdirTemp("", "stheno")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	shapes, times := filepath.Join(dir, "shapes.json"), filepath.Join(dir, "peers.json")
	file, err := os.Create(shapes)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(describeCases(file, maintain.Drawn(drawn)), file.Close()); err != nil {
		return nil, err
	}
	script := exec.Command("python3", path, shapes, times)
	script.Stdout, script.Stderr = c.err, c.err
	if err := script.Run(); err != nil {
		return nil, fmt.Errorf("--peers: %v: %w", script, err)
	}
	return records.ReadPeers(times)
}

// conclude prints the statistics of drawn cases, and plots the cases if a file is given.
func conclude(c *console, f *records.File, plot string) error {
	if starved := f.Starved(); len(starved) > 0 {
		fmt.Fprintf(c.out, "\nbelow 60 %% of the copy's bandwidth, of the cases that move over 64 MB, the worst first:\n")
		lines := [][]string{{"case", "time", "of copy"}}
		for _, row := range starved {
			lines = append(lines, []string{row.Key.String(), row.Micros(), f.OfCopy(row)})
		}
		if err := printTable(c, lines); err != nil {
			return err
		}
	}
	points := f.Points()
	if len(points) == 0 {
		if plot != "" {
			return fmt.Errorf("--plot: no case has a time beside another library's, want --peers for them")
		}
		return nil
	}
	const worst = 30
	fmt.Fprintf(c.out, "\nthe %d slowest beside other libraries:\n", min(worst, len(points)))
	lines := [][]string{{"case", "Stheno", "the other", "Stheno is", "the other is"}}
	for _, p := range points[:min(worst, len(points))] {
		lines = append(lines, []string{p.Here.Key.String(), records.Micros(p.Here.Us), records.Micros(p.Peer.Us), timesAsFast(p.Here.Us, p.Peer.Us), p.Peer.By})
	}
	if err := printTable(c, lines); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "\ntimes as fast as the fastest other library:\n")
	if err := printTable(c, records.Ratios(points)); err != nil || plot == "" {
		return err
	}
	if err := maintain.PlotRatios(plot, f); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	_, err := fmt.Fprintf(c.out, "\nwrote %s\n", plot)
	return err
}
