package notebook

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	recorded "github.com/stheno-ml/stheno/bench/results"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Without a GPU, and with -record, the time of a case of the benchmarks is that of bench/results for
// the device, and the page says so once. It is not recorded again. On a GPU without -record, and
// for a case that is not there, it is measured.
func TestBenchmark(t *testing.T) {
	files := testutil.Get[[]*records.File](t)(records.ReadSet(recorded.Files, records.Ops))
	file := files[slices.IndexFunc(files, func(f *records.File) bool { return len(f.Of(records.Time)) > 0 && len(f.Of(records.Peer)) > 0 })]
	row, peer := file.Of(records.Time)[0], file.Of(records.Peer)[0]
	same := Case{Op: row.Op, Name: row.Case, Dtype: row.Dtype}
	other := Case{Op: peer.Op, Name: peer.Case, Dtype: peer.Dtype, By: peer.By}
	absent := Case{Op: row.Op, Name: "of nothing", Dtype: row.Dtype}
	text := withRecord(fmt.Sprintf(`{"device": %q, "date": "2026-01-02", "kernels": {"sum": "1"}, "figures": {"absent": {"value": 7, "unit": "us"}, "again": {"value": 8, "unit": "us"}}}`, file.GPU))
	show := func(p *Page) {
		for key, c := range map[string]struct {
			Case
			want float64
		}{"same": {same, round(row.Us)}, "again": {same, round(row.Us)}, "peer": {other, round(peer.Us)}, "absent": {absent, 7}} {
			m := p.Benchmark(key, c.Case, func() float64 { t.Errorf("%s is measured", key); return 1 })
			if m.Value != c.want || m.Unit != "us" {
				t.Errorf("%s: got %v, want %v us", key, m, c.want)
			}
		}
		if err := Try(func() { p.Benchmark("same", same, nil) }); err == nil {
			t.Error("a key was taken twice")
		}
	}
	var log bytes.Buffer
	if err := Run(Options{Device: "cpu"}, &log, "Title", text, show); err != nil {
		t.Fatal(err)
	}
	micros := func(us float64) string { return strings.Replace(records.Micros(us), "us", "µs", 1) }
	said := strings.Join(strings.Fields(log.String()), " ")
	for _, want := range []string{figure.Typeset(fmt.Sprintf("`%s` %s float32 %s (", row.Op, row.Case, micros(row.Us))), " by " + peer.By + " " + micros(peer.Us)} {
		if strings.Count(said, want) != 1 {
			t.Errorf("the text is %q, want once %q", said, want)
		}
	}
	if missing, twice, err := Unrecorded(text, show); err != nil || missing != nil || !slices.Equal(twice, []string{"again"}) {
		t.Errorf("got %v missing and %q twice, %v, want again twice", missing, twice, err)
	}
	if missing, _, err := Unrecorded(nil, func(p *Page) {
		p.Benchmark("x", absent, nil)
	}); err != nil || !slices.Equal(missing, []Missing{{"x", absent}}) {
		t.Errorf("got %v missing, %v, want x, which is a case", missing, err)
	}
	gpu := &cudaops.Device{Device: kernels.Device{Name: file.GPU}}
	for file, want := range map[string]float64{"": 3, "recorded.json": round(row.Us)} {
		p := &Page{gpu: gpu, terminal: io.Discard, options: Options{Record: file}, measured: newRecord(gpu), benchmarks: map[string]published{}, unmeasured: map[string]Case{}}
		p.recorded = new(record)
		m := p.Benchmark("x", same, func() float64 { return 3 })
		if m.Value != want || p.measured.has("x") != (file == "") {
			t.Errorf("on a GPU, -record %q: got %v, and recorded %v, want %v", file, m, p.measured.has("x"), want)
		}
	}
}
