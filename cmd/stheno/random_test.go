package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The list of drawn cases is JSON for other libraries, the same for one seed; --run
// chooses among ops, which get the same cases then.
func TestRandomList(t *testing.T) {
	list := func(args string) (drawn []opspec.Drawn) {
		t.Helper()
		text := succeed(t, append(strings.Fields(args), "--list")...)
		testutil.Do(t, json.Unmarshal([]byte(text), &drawn))
		return drawn
	}
	equal := func(a, b opspec.Drawn) bool { return a.Op == b.Op && a.Name == b.Name && a.Dtype == b.Dtype }
	all := list("bench gpu --random 48 --seed 7")
	if len(all) != 48 || !slices.EqualFunc(all, list("bench gpu --random 48 --seed 7"), equal) {
		t.Errorf("%d cases, want 48 and the same ones again", len(all))
	}
	if slices.EqualFunc(all, list("bench gpu --random 48 --seed 8"), equal) {
		t.Error("another seed gives the same cases")
	}
	sums := list("bench gpu --random 4 --seed 7 --run ^Sum$")
	all = slices.DeleteFunc(all, func(d opspec.Drawn) bool { return d.Op != "Sum" })
	if !slices.EqualFunc(all, sums, equal) {
		t.Errorf("Sum alone gets %v, among all ops %v", sums, all)
	}
	for _, d := range list("bench host --random 60 --seed 7 --most 0.5") {
		bytes := 0
		for _, shape := range d.Shapes {
			n := 1
			for _, extent := range shape {
				n *= extent
			}
			bytes += n
		}
		if bytes > 500_000 {
			t.Errorf("%s %s: inputs of %d elements, want at most 0.5 MB", d.Op, d.Name, bytes)
		}
	}
}

// A bench of drawn cases on the host prints each, the worst first, percentiles, and draws
// them.
func TestRandomOnHost(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "all.svg")
	out := succeed(t, "bench", "host", "--random", "13", "--seed", "5", "--most", "0.05", "--runs", "1", "--plot", plot)
	for _, want := range []string{
		`the host's \d+ cores, copy [0-9.]+ GB/s, read and write counted; seed 5\n`,
		`\ncase +time +rate +of copy +checked +error / allowed\n(.* [um]s +.*(all|16 rows).*\n){13}`,
		`\nthe 13 slowest beside other libraries:\n`, `plain loops and gonum's BLAS\n`,
		`\ntimes as fast as the fastest other library:\nop +cases +geometric mean +least .*\n`, `\nall +13 `, `\nwrote .*all.svg\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	_, after, _ := strings.Cut(out, "slowest beside")
	var ratios []string
	for _, m := range regexp.MustCompile(`([0-9.]+) times as fast  `).FindAllStringSubmatch(after, -1) {
		ratios = append(ratios, m[1])
	}
	if len(ratios) != 13 || !slices.IsSortedFunc(ratios, func(a, b string) int {
		if len(a) != len(b) { // both have two decimals
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	}) {
		t.Errorf("ratios %q, want 13 with the worst first", ratios)
	}
	if text := string(testutil.Get[[]byte](t)(os.ReadFile(plot))); !strings.Contains(text, "13 drawn cases, ") {
		t.Errorf("%s has no title", plot)
	}
}

// A file of drawn cases shows the same later: cases that are slow beside others, and those that are far
// from the bandwidth.
func TestRatios(t *testing.T) {
	at := func(kind records.Kind, name, by string, us, bytes float64) records.Record {
		return records.Record{Kind: kind, Key: records.Key{Op: "Sum", Case: name, Dtype: "f32"}, By: by, Us: us, Values: map[string]float64{"bytes": bytes, "flops": 1}}
	}
	times := []records.Record{at(records.Time, "good", "", 25, 1e8), at(records.Time, "slow", "", 200, 1e8), at(records.Time, "small", "", 200, 1e4)}
	f := &records.File{Set: records.Drawn, GPU: "G", Runs: []records.Run{{Copy: 4000, Seed: 7}},
		Records: append(times, at(records.Peer, "good", "x", 50, 0), at(records.Peer, "slow", "x", 20, 0), at(records.Peer, "slow", "y", 30, 0))}
	dir := t.TempDir()
	path := filepath.Join(dir, "g.json")
	testutil.Do(t, f.Write(path))
	const want = `
below 60 % of the copy's bandwidth, of the cases that move over 64 MB, the worst first:
case          time    of copy
Sum/slow/f32  200 us  12 %

the 2 slowest beside other libraries:
case          Stheno   the other  Stheno is           the other is
Sum/slow/f32  200 us   20.0 us    0.10 times as fast  x
Sum/good/f32  25.0 us  50.0 us    2.00 times as fast  x

times as fast as the fastest other library:
op   cases  geometric mean  least  5 %   25 %  median  75 %  95 %  most  below 0.8
Sum  2      0.45            0.10   0.10  0.10  0.10    2.00  2.00  2.00  1
`
	if got := succeed(t, "maintain", "ratios", path); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := succeed(t, "maintain", "ratios", path, "--plot", filepath.Join(dir, "g.svg")); !strings.HasSuffix(got, "g.svg\n") {
		t.Errorf("with --plot: got\n%s", got)
	}
	f.Records = times
	testutil.Do(t, f.Write(path))
	if status, _, stderr := stheno("maintain", "ratios", path, "--plot", filepath.Join(dir, "g.svg")); status != failure || !strings.Contains(stderr, "--peers") {
		t.Errorf("a plot without peers: status %d, %s, want an error that names --peers", status, stderr)
	}
}

// fakeCase is a case that takes no GPU.
type fakeCase struct {
	maintain.Case
	key records.Key
}

func (f fakeCase) Key() records.Key { return f.key }

// A measurement prints and saves each row as it comes, goes on after a failure, and names
// peers of no case.
func TestMeasurement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.json")
	keys := []records.Key{{Op: "A", Case: "one", Dtype: "f32"}, {Op: "B", Case: "bad", Dtype: "f32"}, {Op: "C", Case: "two", Dtype: "f64"}}
	saved := -1
	var out bytes.Buffer
	m := measurement{
		file: &records.File{Set: records.Ops, GPU: "G", Runs: []records.Run{{Copy: 1000}}, Records: []records.Record{{Kind: records.Peer, Key: keys[0], By: "x", Us: 5}, {Kind: records.Peer, Key: keys[1], By: "y", Us: 5}}},
		path: path,
		time: func(c maintain.Case) ([]records.Record, error) {
			if c.Key() == keys[1] {
				return nil, errors.New("it broke")
			}
			if f, err := records.Read(path); err == nil {
				saved = len(f.Of(records.Time))
			}
			return []records.Record{{Kind: records.Time, Key: c.Key(), Us: 10, Values: map[string]float64{"bytes": 5e6, "flops": 1, "error": 0.25}, Note: "all"}}, nil
		},
	}
	for _, key := range keys {
		m.cases = append(m.cases, fakeCase{key: key})
	}
	err := m.run(&console{&out, &out})
	if err == nil || !strings.Contains(err.Error(), "B/bad/f32: it broke") || !strings.Contains(err.Error(), "peer y times B/bad/f32") {
		t.Errorf("got %v, want the failure and the peer without a case", err)
	}
	want := regexp.MustCompile(`case +time +rate +of copy +than the best peer +checked +error / allowed
A/one/f32 +10.0 us +500 GB/s +50 % +0.50 times as fast +all +0.25
B/bad/f32 +failed: it broke
C/two/f64 +10.0 us +500 GB/s +50 % +all +0.25

wrote .*g.json
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got\n%swant %v", out.String(), want)
	}
	f := testutil.Get[*records.File](t)(records.Read(path))
	if saved != 1 || len(f.Of(records.Time)) != 2 {
		t.Errorf("%d rows were saved before the last case and %d after, want 1 and 2", saved, len(f.Of(records.Time)))
	}
}

// The times of other libraries come from a file, or from a script that gets the cases.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	drawn := testutil.Get[[]opspec.Drawn](t)(opspec.Draw(2, 3, opspec.Limits{Least: 1e3, Most: 1e5, Flops: 1e6}, opspec.All()))
	var out bytes.Buffer
	c := &console{&out, &out}
	if peers, err := peersOf(c, "", drawn); err != nil || peers != nil {
		t.Errorf("none: got %v, %v", peers, err)
	}
	file := filepath.Join(dir, "peers.json")
	testutil.Write(t, file, `[{"kind": "peer", "op": "Add", "case": "x", "dtype": "f32", "by": "me", "us": 7}]`)
	if peers, err := peersOf(c, file, drawn); err != nil || len(peers) != 1 || peers[0].Us != 7 {
		t.Errorf("a file: got %v, %v", peers, err)
	}
	script := filepath.Join(dir, "peers.py")
	testutil.Write(t, script, `import json, sys
shapes, times = sys.argv[1:]
json.dump([{"kind": "peer", "op": c["op"], "case": c["case"], "dtype": c["dtype"], "by": "me", "us": 1 + len(c["shapes"])} for c in json.load(open(shapes))], open(times, "w"))
`)
	peers, err := peersOf(c, script, drawn)
	if errors.Is(err, os.ErrNotExist) || err != nil && strings.Contains(err.Error(), "executable file not found") {
		t.Skip("no python3")
	}
	if err != nil || len(peers) != 2 || peers[1].Case != drawn[1].Name {
		t.Errorf("a script: got %v, %v, want a time for each case", peers, err)
	}
	testutil.Write(t, script, "import sys; sys.exit('it cannot')")
	if _, err := peersOf(c, script, drawn); err == nil || !strings.Contains(out.String(), "it cannot") {
		t.Errorf("a script that fails: %v and %q, want an error and its message", err, out.String())
	}
}
