package maintain

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// points has n cases of two ops with a time in another library; those of Sum have the ratios n to 1.
func points(n int) []records.Point {
	f := &records.File{Runs: []records.Run{{}}}
	add := func(op, name string, us, bytes, flops, peer float64) {
		key := records.Key{Op: op, Case: name, Dtype: "f32"}
		f.Records = append(f.Records, records.Record{Kind: records.Time, Key: key, Us: us, Values: map[string]float64{"bytes": bytes, "flops": flops}},
			records.Record{Kind: records.Peer, Key: key, By: "x", Us: peer})
	}
	for i := range n {
		add("Sum", fmt.Sprint(i), 10, float64(int64(1)<<i), 1, 10*float64(n-i))
		add("MatMul", fmt.Sprint(i), 5, 100, float64(int64(1)<<(10+i)), 5*[]float64{0.5, 2}[i%2])
	}
	return f.Points()
}

// A panel for each kind of limit, with its units, its
// roofline and as many marks as there are times.
func TestPlot(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "a.svg")
	testutil.Do(t, plot(svg, "40 shapes", points(20), 1000))
	text := string(testutil.Get[[]byte](t)(os.ReadFile(svg)))
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">bytes moved (log)<", ">operations (log)<", ">time, µs (log)<", ">100<", ">Stheno<", ">the fastest other library<",
		">roofline: copy, 1e+03 GB/s<", ">roofline: the fastest, 107 TFLOP/s<", ">40 shapes<"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, svg)
		}
	}
	if n := strings.Count(text, "fill:#1F6FB4"); n < 40 {
		t.Errorf("%d marks of Stheno's, want 40 and those of the legends", n)
	}
	if err := plot(svg, "", nil, 1); err == nil {
		t.Error("of no points: no error")
	}
	testutil.Do(t, plot(svg, "one", points(1), 1))
}
