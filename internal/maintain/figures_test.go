package maintain

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// rounding is how far two prints of one time may be apart, as a share: three digits are printed.
const rounding = 0.006

// A place has the time of a case in us.
type place struct {
	where string
	us    float64
}

// figures are the times of each case, in all places.
type figures map[string][]place

// add takes a time as it is printed, such as "1.47 ms".
func (f figures) add(t *testing.T, what, where, time string) {
	t.Helper()
	number, unit, _ := strings.Cut(strings.ReplaceAll(time, "µs", "us"), " ")
	v, err := strconv.ParseFloat(number, 64)
	scale := map[string]float64{"us": 1, "ms": 1e3}[unit]
	if err != nil || scale == 0 {
		t.Errorf("%s: %s has the time %q, want one in us or ms", where, what, time)
		return
	}
	f[what] = append(f[what], place{where, v * scale})
}

// disagreeing are the cases whose times differ by more than they are rounded.
func (f figures) disagreeing() map[string][]place {
	bad := map[string][]place{}
	for what, places := range f {
		least, most := math.Inf(1), 0.0
		for _, p := range places {
			least, most = min(least, p.us), max(most, p.us)
		}
		if most > least*(1+rounding) {
			bad[what] = places
		}
	}
	return bad
}

// table reads the times in a generated table of a document: of each row whose first cells are a
// name, a size or a case and, if typed, an element type, the time in the given column.
func (f figures) table(t *testing.T, page, marker, kind string, typed bool, column int) {
	t.Helper()
	_, text, _ := strings.Cut(string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join("..", "..", page)))), "<!-- "+marker+":begin -->")
	text, _, found := strings.Cut(text, "<!-- "+marker+":end -->")
	rows, on := 0, ""
	for line := range strings.Lines(text) {
		if gpu := headed.FindStringSubmatch(line); gpu != nil {
			if on = ""; gpu[1] != notebooksGPU {
				on = " on the " + gpu[1]
			}
		}
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "¦"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) < column+2 || !printed.MatchString(cells[column]) {
			continue
		}
		dtype := "float32"
		if typed {
			dtype = cells[3]
		}
		rows++
		f.add(t, kind+" "+strings.Trim(cells[1], "`")+" "+cells[2]+" "+dtype+on, page, cells[column])
	}
	if !found || rows < 3 {
		t.Errorf("%s: the table %s has %d rows with times", page, marker, rows)
	}
}

var (
	printed = regexp.MustCompile(`^[\d.]+ [mu]s$`)
	headed  = regexp.MustCompile(`^\*\*(NVIDIA [^*]+)\*\*`) // the part of a table with times on a GPU
)

// notebooksGPU is the GPU of the records of notebooks; times on others are not compared with theirs.
const notebooksGPU = "NVIDIA H200"

// own are figures of notebooks that are cases of the benchmarks, by what their keys look like. A
// record must have none of them.
var own = []struct{ notebook, key, what string }{
	{"01-reduction", `^(2\^\d+), version 0$`, "case Sum all $1 float32"},
	{"02-window-and-matmul", `^matmul f(\d+), (\d+), version 0, transA false$`, "case MatMul $2 float$1"},
	{"02-window-and-matmul", `^warpgroups, (\d+), the op$`, "case MatMul $1 float32"},
	{"02-window-and-matmul", `^cuBLAS, (float\d+) (\d+)$`, "case MatMul $2 $1 by cuBLAS"},
	{"05-step-by-step", `^512x512 version 0(?:, mean)?$`, "case Sum all 512x512 float32"},
	{"05-step-by-step", `^(2\^\d+) version 0$`, "case Sum all $1 float32"},
	{"06-whole-graph", `^(batch \d+), launches$`, "case MLP 784-512-512-10, gradient $1 float32"},
}

// record reads the record of a notebook.
func (f figures) record(t *testing.T, path string) {
	t.Helper()
	var record struct {
		Figures map[string]struct{ Value float64 }
	}
	testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(os.ReadFile(path)), &record))
	for _, o := range own {
		if filepath.Base(filepath.Dir(path)) != o.notebook {
			continue
		}
		key := regexp.MustCompile(o.key)
		for k, v := range record.Figures {
			if what := key.ReplaceAllString(k, o.what); key.MatchString(k) && f[what] != nil {
				f[what] = append(f[what], place{path, v.Value})
			}
		}
	}
}

// README, documents and records of notebooks have one time for one case. The pages of notebooks take
// theirs from bench/results, and TestGallery finds them in these documents.
func TestFiguresAgree(t *testing.T) {
	f := figures{}
	f.table(t, "docs/speed.md", "speed", "case", true, 4)
	f.peers(t)
	f.table(t, "docs/graphs.md", "graphs", "case", false, 4)
	f.table(t, "README.md", "steps", "step", false, 3)
	f.table(t, "docs/training.md", "steps", "step", false, 4)
	f.table(t, "docs/precision.md", "precision", "step", false, 3)
	for _, path := range testutil.Get[[]string](t)(filepath.Glob("../../examples/*/recorded.json")) {
		f.record(t, path)
	}
	for what, places := range f.disagreeing() {
		t.Errorf("%s has other times in other places (run `make readme`): %v", what, places)
	}
}

// peers adds the times of cuBLAS in the table of ops.
func (f figures) peers(t *testing.T) {
	t.Helper()
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\| (\\w+) \\|.* (cuBLAS) [^|]*, ([\\d.]+ [mu]s) \\|")
	all := rows.FindAllStringSubmatch(string(testutil.Get[[]byte](t)(os.ReadFile("../../docs/speed.md"))), -1)
	for _, m := range all {
		f.add(t, "case "+m[1]+" "+m[2]+" "+m[3]+" by "+m[4], "docs/speed.md", m[5])
	}
	if len(all) == 0 {
		t.Error("docs/speed.md has no time of cuBLAS")
	}
}

// Times that differ are found, and those of two roundings are not.
func TestFiguresDisagree(t *testing.T) {
	f := figures{}
	f.add(t, "a", "here", "1.47 ms")
	f.add(t, "a", "there", "1471 µs")
	f.add(t, "b", "here", "5.12 us")
	f["b"] = append(f["b"], place{"there", 10.6})
	if bad := f.disagreeing(); len(bad) != 1 || len(bad["b"]) != 2 {
		t.Errorf("got %v, want the two times of b", bad)
	}
}
