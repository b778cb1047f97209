package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/results"
)

// The list of drawn cases is JSON for other libraries, the same for one seed; --run
// chooses among ops, which get the same cases then.
func TestRandomList(t *testing.T) {
	list := func(args string) (drawn []opspec.Drawn) {
		t.Helper()
		text := succeed(t, append(strings.Fields(args), "--list")...)
		must.Do(t, json.Unmarshal([]byte(text), &drawn))
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
	if text := string(must.Get[[]byte](t)(os.ReadFile(plot))); !strings.Contains(text, "13 drawn cases, ") {
		t.Errorf("%s has no title", plot)
	}
}

// A file of drawn cases shows the same later: cases that are slow beside others, and those that are far
// from the bandwidth.
func TestRatios(t *testing.T) {
	key := func(name string) results.Key { return results.Key{Op: "Sum", Case: name, Dtype: "f32"} }
	f := &results.File{GPU: "G", Run: results.Run{Copy: 4000}, Seed: 7,
		Rows: []results.Row{
			{Key: key("good"), Micros: 25, Bytes: 1e8, Flops: 1}, {Key: key("slow"), Micros: 200, Bytes: 1e8, Flops: 1}, {Key: key("small"), Micros: 200, Bytes: 1e4, Flops: 1}},
		Peers: []results.Peer{{Key: key("good"), By: "x", Micros: 50}, {Key: key("slow"), By: "x", Micros: 20}, {Key: key("slow"), By: "y", Micros: 30}},
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "g.json")
	must.Do(t, f.Write(path))
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
	f.Peers = nil
	must.Do(t, f.Write(path))
	if status, _, stderr := stheno("maintain", "ratios", path, "--plot", filepath.Join(dir, "g.svg")); status != failure || !strings.Contains(stderr, "--peers") {
		t.Errorf("a plot without peers: status %d, %s, want an error that names --peers", status, stderr)
	}
}

// The script that times other libraries knows every op, and every expression that is drawn.
func TestPeersKnowEveryOp(t *testing.T) {
	script := string(must.Get[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "bench", "random_peers.py"))))
	known := map[string]bool{}
	for _, d := range must.Get[[]opspec.Drawn](t)(opspec.Draw(1200, 1, opspec.Limits{Least: 1e3, Most: 1e9, Flops: 1e12}, opspec.All())) {
		for _, word := range []string{d.Op, d.Expression} {
			if known[word] = strings.Contains(script, fmt.Sprintf("%q: ", word)); word != "" && !known[word] {
				t.Fatalf("bench/random_peers.py has no entry %q", word)
			}
		}
	}
	if len(known) < 12+6+6 {
		t.Errorf("%d ops and expressions were drawn, want all", len(known))
	}
}

// A wrong output of a drawn case is an error.
func TestDrawnCaseIsChecked(t *testing.T) {
	drawn := must.Get[[]opspec.Drawn](t)(opspec.Draw(9, 3, opspec.Limits{Least: 1e3, Most: 1e5, Flops: 1e6}, opspec.All()[:1]))
	first := slices.IndexFunc(drawn, func(d opspec.Drawn) bool { return d.Op == "Add" && d.Dtype == "f32" })
	d := drawnCases(drawn)[first].(drawnCase)
	block := newRandomBlock(1, 100_003)
	row, plain, err := d.measureOnHost(block, 1)
	if err != nil || !(row.Micros > 0) || !(plain > 0) || row.Check != "all" {
		t.Errorf("got %+v, %v, %v, want two times and a checked result", row, plain, err)
	}
	d.timedCase.Spec.Tolerance = 0 // nothing is allowed, and float32 rounds
	if _, _, err := d.measureOnHost(block, 1); err == nil || !strings.Contains(err.Error(), "wrong result") {
		t.Errorf("got %v where no rounding is allowed, want an error", err)
	}
}

// fakeCase is a case that takes no GPU.
type fakeCase struct {
	benchCase
	key results.Key
}

func (f fakeCase) Key() results.Key { return f.key }

// A measurement prints and saves each row as it comes, goes on after a failure, and names
// peers of no case.
func TestMeasurement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.json")
	keys := []results.Key{{Op: "A", Case: "one", Dtype: "f32"}, {Op: "B", Case: "bad", Dtype: "f32"}, {Op: "C", Case: "two", Dtype: "f64"}}
	saved := -1
	var out bytes.Buffer
	m := measurement{
		file: &results.File{GPU: "G", Run: results.Run{Copy: 1000}, Peers: []results.Peer{{Key: keys[0], By: "x", Micros: 5}, {Key: keys[1], By: "y", Micros: 5}}},
		path: path,
		time: func(c benchCase) (results.Row, error) {
			if c.Key() == keys[1] {
				return results.Row{}, errors.New("it broke")
			}
			if f, err := results.Read(path); err == nil {
				saved = len(f.Rows)
			}
			return results.Row{Key: c.Key(), Micros: 10, Bytes: 5e6, Flops: 1, Check: "all", Error: 0.25}, nil
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
	f := must.Get[*results.File](t)(results.Read(path))
	if saved != 1 || len(f.Rows) != 2 {
		t.Errorf("%d rows were saved before the last case and %d after, want 1 and 2", saved, len(f.Rows))
	}
}

// The times of other libraries come from a file, or from a script that gets the cases.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	drawn := must.Get[[]opspec.Drawn](t)(opspec.Draw(2, 3, opspec.Limits{Least: 1e3, Most: 1e5, Flops: 1e6}, opspec.All()))
	var out bytes.Buffer
	c := &console{&out, &out}
	if peers, err := peersOf(c, "", drawn); err != nil || peers != nil {
		t.Errorf("none: got %v, %v", peers, err)
	}
	file := filepath.Join(dir, "peers.json")
	must.Write(t, file, `[{"op": "Add", "case": "x", "dtype": "f32", "by": "me", "median_us": 7}]`)
	if peers, err := peersOf(c, file, drawn); err != nil || len(peers) != 1 || peers[0].Micros != 7 {
		t.Errorf("a file: got %v, %v", peers, err)
	}
	script := filepath.Join(dir, "peers.py")
	must.Write(t, script, `import json, sys
flag, shapes, times = sys.argv[1:]
assert flag == "-random"
json.dump([{"op": c["op"], "case": c["case"], "dtype": c["dtype"], "by": "me", "median_us": 1 + len(c["shapes"])} for c in json.load(open(shapes))], open(times, "w"))
`)
	peers, err := peersOf(c, script, drawn)
	if errors.Is(err, os.ErrNotExist) || err != nil && strings.Contains(err.Error(), "executable file not found") {
		t.Skip("no python3")
	}
	if err != nil || len(peers) != 2 || peers[1].Case != drawn[1].Name {
		t.Errorf("a script: got %v, %v, want a time for each case", peers, err)
	}
	must.Write(t, script, "import sys; sys.exit('it cannot')")
	if _, err := peersOf(c, script, drawn); err == nil || !strings.Contains(out.String(), "it cannot") {
		t.Errorf("a script that fails: %v and %q, want an error and its message", err, out.String())
	}
}

// Calls too short for the clock are repeated.
func TestBestOf(t *testing.T) {
	calls := 0
	if best := bestOf(3, func() { calls++ }); calls < 100 || best > time.Millisecond {
		t.Errorf("an empty call: %d calls, %v each", calls, best)
	}
	calls = 0
	if best := bestOf(30, func() { calls++; time.Sleep(20 * time.Millisecond) }); calls > 5 || best < 20*time.Millisecond {
		t.Errorf("a call of 20 ms: %d calls, %v, want those that fit into 50 ms", calls, best)
	}
}
