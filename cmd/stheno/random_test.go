package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	list := func(args string) (drawn []opspec.Description) {
		t.Helper()
		text := succeed(t, append(strings.Fields(args), "--list")...)
		testutil.Do(t, json.Unmarshal([]byte(text), &drawn))
		return drawn
	}
	equal := func(a, b opspec.Description) bool { return a.Op == b.Op && a.Name == b.Name && a.Dtype == b.Dtype }
	all := list("bench gpu --random 48 --seed 7")
	if len(all) != 48 || !slices.EqualFunc(all, list("bench gpu --random 48 --seed 7"), equal) {
		t.Errorf("%d cases, want 48 and the same ones again", len(all))
	}
	if slices.EqualFunc(all, list("bench gpu --random 48 --seed 8"), equal) {
		t.Error("another seed gives the same cases")
	}
	all = slices.DeleteFunc(all, func(d opspec.Description) bool { return d.Op != "Sum" })
	if sums := list(fmt.Sprintf("bench gpu --random %d --seed 7 --run ^Sum$", len(all))); len(all) == 0 || !slices.EqualFunc(all, sums, equal) {
		t.Errorf("Sum alone gets %v, among all ops %v", sums, all)
	}
	for _, d := range list("bench gpu --random 60 --seed 7 --most 0.5") {
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

// A bench of random cases ends with the cases that are slow beside others, and those that are far
// from the bandwidth.
func TestConclude(t *testing.T) {
	at := func(kind records.Kind, name, by string, us, bytes float64) records.Record {
		return records.Record{Kind: kind, Key: records.Key{Op: "Sum", Case: name, Dtype: "f32"}, By: by, Us: us, Values: map[string]float64{"bytes": bytes, "flops": 1}}
	}
	times := []records.Record{at(records.Time, "good", "", 25, 1e8), at(records.Time, "slow", "", 200, 1e8), at(records.Time, "small", "", 200, 1e4)}
	f := &records.File{Set: records.Drawn, GPU: "G", Runs: []records.Run{{Copy: 4000, Seed: 7}},
		Records: append(times, at(records.Peer, "good", "x", 50, 0), at(records.Peer, "slow", "x", 20, 0), at(records.Peer, "slow", "y", 30, 0))}
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
	var out bytes.Buffer
	testutil.Do(t, conclude(&console{&out, &out}, f))
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// fakeCase is a case that takes no GPU.
type fakeCase struct {
	maintain.Case
	key     records.Key
	measure func(key records.Key) ([]records.Record, error)
}

func (f fakeCase) Key() records.Key { return f.key }

func (f fakeCase) Measure(maintain.Bench) ([]records.Record, error) { return f.measure(f.key) }

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
	}
	measure := func(key records.Key) ([]records.Record, error) {
		if key == keys[1] {
			return nil, errors.New("it broke")
		}
		if f, err := records.Read(path); err == nil {
			saved = len(f.Of(records.Time))
		}
		return []records.Record{{Kind: records.Time, Key: key, Us: 10, Values: map[string]float64{"bytes": 5e6, "flops": 1, "error": 0.25}, Note: "all"}}, nil
	}
	for _, key := range keys {
		m.cases = append(m.cases, fakeCase{key: key, measure: measure})
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
