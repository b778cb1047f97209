package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// A file of results has a line for each case: of a process that ends or hangs a fault for the cases that it had no result of. Cases for which no time
// is left are none, and no name of a host is in the file.
func TestRecord(t *testing.T) {
	run := records.Run{Driver: "1", CUDA: "13.0", Go: "go", Date: "2026-01-02"}
	header := newFile(records.Ops, cudaops.Device{}, run)
	header.GPU = "G"
	path := filepath.Join(t.TempDir(), "g.json")
	var ops []string // in the order in which they ran
	bench := func(ctx context.Context, pattern string, flags ...string) (*records.File, error) {
		check, matches := slices.Contains(flags, "--check"), regexp.MustCompile(pattern)
		f := *header
		f.Runs, f.Records = []records.Run{run}, nil
		f.Runs[0].Copy = float64(1000 + len(ops))
		cases := maintain.Cases(records.Ops, false)
		if check {
			cases = maintain.Checks()
		}
		for _, c := range cases {
			if !matches.MatchString(c.Key().String()) {
				continue
			}
			if !slices.Contains(ops, c.Key().Op) {
				ops = append(ops, c.Key().Op)
			}
			switch {
			case check && c.Key().Op == "Dot":
				return nil, errors.New("signal: segmentation fault\nat /home/somebody")
			case !check && c.Key().Op == "Sum" && len(f.Records) == 1:
				return &f, errors.New("it ended")
			case !check && c.Key().Op == "MatMul":
				return nil, errors.New("it ended")
			case check:
				f.Records = append(f.Records, records.Record{Kind: records.Check, Key: c.Key(), Note: "2 cases"})
			default:
				f.Records = append(f.Records, records.Record{Kind: records.Time, Key: c.Key(), Us: 1, Values: map[string]float64{"bytes": 1}})
			}
		}
		return &f, nil
	}
	var out bytes.Buffer
	testutil.Do(t, record{Out: path, Limit: time.Hour}.collect(&console{&out, &out}, header, bench))
	f := testutil.Get[*records.File](t)(records.Read(path))
	if len(f.Runs) != 1 || f.Runs[0].Copy != 1000 {
		t.Errorf("got the runs %v, want one", f.Runs)
	}
	for _, c := range append(maintain.Checks(), maintain.Cases(records.Ops, false)...) {
		r, ok := f.Local(c.Key())
		key := c.Key()
		fault := key.Op == "MatMul" && key.Case != "" || key == records.Key{Op: "Dot"} || key.Op == "Sum" && key.Case != "" && key != maintain.Cases(records.Ops, false)[slices.IndexFunc(maintain.Cases(records.Ops, false), func(c maintain.Case) bool { return c.Key().Op == "Sum" })].Key()
		if !ok || (r.Kind == records.Fault) != fault || fault && !strings.HasPrefix(r.Note, "the process ended: ") || strings.Contains(r.Note, "somebody") {
			t.Errorf("%v: got a %s, %q, want a fault: %v", key, r.Kind, r.Note, fault)
		}
	}
	text := records.Speed(f, maintain.Keys(records.Ops))
	for _, want := range []string{"- `Dot` failed: the process ended: signal: segmentation fault", "failed: the process ended: it ended"} {
		if !strings.Contains(text, want) {
			t.Errorf("got the table\n%s\nwant %q in it", text, want)
		}
	}

	// Without time nothing runs, and nothing is a fault.
	out.Reset()
	none := func(context.Context, string, ...string) (*records.File, error) {
		t.Error("a bench began after the time was over")
		return nil, nil
	}
	testutil.Do(t, record{Out: path, Limit: 0}.collect(&console{&out, &out}, newFile(records.Ops, cudaops.Device{}, run), none))
	if !strings.Contains(out.String(), "no time was left for") {
		t.Errorf("got %q, want the number of cases without time", &out)
	}

	// A hang ends with the time of its op.
	hang := func(ctx context.Context, _ string, _ ...string) (*records.File, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out.Reset()
	last := newFile(records.Ops, cudaops.Device{}, run)
	testutil.Do(t, record{Out: path, Limit: 50 * time.Millisecond}.collect(&console{&out, &out}, last, hang))
	if len(last.Of(records.Fault)) != 0 || !strings.Contains(out.String(), "no time was left for") {
		t.Errorf("got %q and %v, want no fault: the limit of all ended the bench", &out, last.Of(records.Fault))
	}
}
