package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
)

const (
	page     = "../../docs/port-your-program.md"
	readme   = "../../README.md"
	recorded = "../../bench/results/port"
)

var updatePages = flag.Bool("update", false, "write the table of the page and of the README")

// All stages learn the same: step by step they have the loss of Gorgonia's machine.
func TestStagesLearnTheSame(t *testing.T) {
	if G.CUDA {
		t.Skip("SKIPPED, NOT TESTED: Gorgonia's machine asks for a GPU in a build with the tag cuda")
	}
	const epochs, seed = 3, 5
	d := newData(2, seed)
	want := testutil.Get[[]float32](t)(onTape(d, epochs, seed))
	if n := len(want); n != 2*epochs || !(want[n-1] < want[0]) {
		t.Fatalf("Gorgonia's machine has the losses %v, want %d that fall", want, 2*epochs)
	}
	for _, s := range stages[1:] {
		got := testutil.Get[[]float32](t)(s.run(d, epochs, seed))
		if len(got) != len(want) {
			t.Fatalf("%s: got losses %v, want %v", s.file, got, want)
		}
		for i := range want {
			if math.Abs(float64(got[i]-want[i])) > 1e-4 {
				t.Errorf("%s: step %d: got loss %v, want %v", s.file, i, got[i], want[i])
			}
		}
	}
}

func TestMeasure(t *testing.T) {
	var b strings.Builder
	const long = time.Nanosecond // the first epochs alone
	d := newData(1, 1)
	r := testutil.Get[record](t)(measure(&b, "cpu", d, long))
	for i, s := range stages {
		if wanted := i > 0 || !G.CUDA; (r.Host[i] > 0) != wanted || r.Device[i] != 0 || !strings.Contains(b.String(), s.name) {
			t.Errorf("%s: got %v and %v steps per second, printed\n%s", s.name, r.Host[i], r.Device[i], &b)
		}
	}
	dir := t.TempDir()
	testutil.Do(t, r.write(dir))
	if got := read(t, dir); len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(r) {
		t.Errorf("the record is read as %v, want %v", got, r)
	}
	if _, err := measure(&b, "tpu", d, long); err == nil || !strings.Contains(err.Error(), "tpu") {
		t.Errorf("-device tpu gives error %v", err)
	}
}

// The page's code is the program's.
func TestPage(t *testing.T) {
	text := string(testutil.Get[[]byte](t)(os.ReadFile(page)))
	blocks := regexp.MustCompile("(?ms)^```go (\\S+)\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	shown := map[string]bool{}
	for _, b := range blocks {
		file := string(testutil.Get[[]byte](t)(os.ReadFile(b[1])))
		if shown[b[1]] = true; !strings.Contains(file, b[2]) {
			t.Errorf("%s does not have the page's piece of it:\n%s", b[1], b[2])
		}
	}
	for _, s := range stages {
		if !shown[s.file] {
			t.Errorf("the page shows nothing of %s", s.file)
		}
	}
}

// The table of the page and of the README is that of the records.
func TestTable(t *testing.T) {
	list := read(t, recorded)
	for _, path := range []string{page, readme} {
		text := string(testutil.Get[[]byte](t)(os.ReadFile(path)))
		want := testutil.Get[string](t)(update(text, list))
		if *updatePages {
			testutil.Do(t, os.WriteFile(path, []byte(want), 0o666))
		} else if want != text {
			t.Errorf("%s: the table is not of the records: run 'go test ./examples/port -run TestTable -update'", path)
		}
	}
}

// On a GPU, too, all stages learn the same.
func TestStagesOnGPU(t *testing.T) {
	devices, err := cudaops.Devices()
	testutil.SkipUnless(t, "GPU", err)
	const epochs, seed = 3, 6
	d := newData(2, seed)
	want := testutil.Get[[]float32](t)(onStheno(d, epochs, seed, cudaops.OnHost()))
	for _, s := range stages[1:] {
		got := testutil.Get[[]float32](t)(s.run(d, epochs, seed, cudaops.OnDevice(devices[0].Ordinal)))
		for i := range want {
			if len(got) != len(want) || math.Abs(float64(got[i]-want[i])) > 1e-4 {
				t.Fatalf("%s: got losses %v, want %v", s.file, got, want)
			}
		}
	}
}

// update rewrites the table of a page, between <!-- port:begin --> and <!-- port:end -->.
func update(text string, list []record) (string, error) {
	var b strings.Builder
	header, rule := "| The program |", "|---|"
	for _, r := range list {
		header += fmt.Sprintf(" %d cores |", r.Cores)
		rule += "--:|"
		if r.GPU != "" {
			header += fmt.Sprintf(" %s |", r.GPU)
			rule += "--:|"
		}
	}
	fmt.Fprintf(&b, "%s\n%s\n", header, rule)
	for i, s := range stages {
		fmt.Fprintf(&b, "| %s |", s.name)
		for _, r := range list {
			fmt.Fprintf(&b, " %s |", perSecond(r.Host[i]))
			if r.GPU != "" {
				fmt.Fprintf(&b, " %s |", perSecond(r.Device[i]))
			}
		}
		fmt.Fprintln(&b)
	}
	for _, r := range list {
		fmt.Fprintf(&b, "\n%d cores, %s: Stheno's products on the host by %s.\n", r.Cores, r.Date, r.BLAS)
	}
	return records.Splice(text, "port", b.String())
}

// read returns the records of a folder by the names of their files. Each has all stages.
func read(t *testing.T, dir string) (list []record) {
	t.Helper()
	for _, path := range testutil.Get[[]string](t)(filepath.Glob(filepath.Join(dir, "*.json"))) {
		var r record
		testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(os.ReadFile(path)), &r))
		if len(r.Host) != len(stages) || len(r.Device) != len(stages) {
			t.Errorf("%s: got %d and %d rates, want %d for the host and the GPU", path, len(r.Host), len(r.Device), len(stages))
		}
		list = append(list, r)
	}
	return list
}
