package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
)

// randomCases draws the cases of --random.
func (b benchGPU) randomCases(seed uint64) ([]maintain.Case, error) {
	limits := opspec.Limits{Least: 1e3, Most: 4e9, Flops: 2e13}
	if b.Most != 0 {
		limits.Most = int64(1e6 * b.Most)
		if limits.Most < 2*limits.Least {
			return nil, usageErrorf("--most: got %g megabytes, want at least %g", b.Most, 2*float64(limits.Least)/1e6)
		}
	}
	all := opspec.All()
	specs := slices.DeleteFunc(slices.Clone(all), func(s opspec.Spec) bool { return !b.selection.Run.Matches(s.Name) })
	if len(specs) == 0 {
		names := make([]string, len(all))
		for i, s := range all {
			names[i] = s.Name
		}
		return nil, usageErrorf("--run: got %q, which matches none of the ops %s", b.selection.Run, strings.Join(names, ", "))
	}
	drawn, err := opspec.Draw(int(b.Random), seed, limits, specs)
	return maintain.Random(drawn), err
}

// random times random cases.
func (b benchGPU) random(c *console) error {
	if b.Versions {
		return usageErrorf("got --versions with --random, want one of them: random cases are of the ops themselves")
	}
	seed := b.seed()
	cases, err := b.randomCases(seed)
	if err != nil {
		return err
	}
	if b.List {
		return describeCases(c.out, cases)
	}
	device, err := b.open("random cases are timed on one")
	if err != nil {
		return err
	}
	peers, err := records.ReadPeers(b.Peers)
	if err != nil {
		return err
	}
	b.Seed = &seed
	file, err := measure(c, records.Drawn, device, cases, b.timing, peers, b.JSON)
	if file == nil {
		return err
	}
	return errors.Join(err, conclude(c, file))
}

// conclude prints the statistics of random cases.
func conclude(c *console, f *records.File) error {
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
	return printTable(c, records.Ratios(points))
}
