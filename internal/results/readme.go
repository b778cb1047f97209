package results

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// UpdateReadme returns README.md's text with the speed table of the given files
// and cases, see [SpeedTable], between the markers <!-- speed:begin --> and
// <!-- speed:end -->. A missing marker is an error.
func UpdateReadme(text string, files []*File, cases []Key) (string, error) {
	return Splice(text, "speed", SpeedTable(files, cases))
}

// UpdateReadmeSteps returns README.md's text with a table of training steps between the markers
// <!-- steps:begin --> and <!-- steps:end -->.
func UpdateReadmeSteps(text string, files []*File, cases []Key) (string, error) {
	tables := make([]string, len(files))
	for i, f := range files {
		tables[i] = f.stepTable(cases)
	}
	return Splice(text, "steps", cmp.Or(strings.Join(tables, "\n"), "Not measured yet.\n"))
}

// stepTable is a table of the given training steps.
func (f *File) stepTable(cases []Key) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**, driver %s (CUDA %s), %s, float32 in full precision where no other is named. Forward, loss, backward and\n", f.GPU, f.Driver, f.CUDA, f.Date)
	b.WriteString("update: the launches alone, and a call of `RunAll`. The fastest of PyTorch eager, captured, and compiled and captured, and of JAX, on the same machine.\n\n")
	b.WriteString(f.Since())
	b.WriteString("| Training step | Size | Time | `RunAll` | Fastest peer | Speed of peer's |\n|---|---|--:|--:|---|--:|\n")
	for _, key := range f.keys(cases) {
		fmt.Fprintf(&b, "| %s | %s | ", cell(key.Op), cell(key.Case))
		if r, ok := f.Row(key); ok && r.Graph != nil {
			fmt.Fprintf(&b, "%s | %s | %s | %s |\n", r.Time(), Micros(r.Graph.Run), f.peer(r), f.OfPeer(r))
		} else {
			b.WriteString("not measured | | | |\n")
		}
	}
	return b.String()
}

// Update rewrites a table in the text of a page: [UpdateReadme], say.
type Update func(text string, files []*File, cases []Key) (string, error)

// CheckPage returns an error that names the command to run if a page differs from the result of update.
func CheckPage(path string, update Update, files []*File, cases []Key) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	want, err := update(string(text), files, cases)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if want != string(text) {
		return fmt.Errorf("%s: its speed table is stale: run 'go run ./cmd/stheno maintain tables'", path)
	}
	return nil
}

// Splice replaces the text between the markers of a name.
func Splice(text, name, table string) (string, error) {
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	head, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("results: no line %q", strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("results: no %q after %q", end, strings.TrimSpace(begin))
	}
	return head + begin + table + end + tail, nil
}

// SpeedTable returns, for each file, a table of the given cases and of its other rows, without
// numbered versions.
func SpeedTable(files []*File, cases []Key) string {
	if len(files) == 0 {
		return "Not measured yet.\n"
	}
	var tables []string
	for _, f := range files {
		tables = append(tables, f.speedTable(cases))
	}
	return strings.Join(tables, "\n")
}

func (f *File) speedTable(cases []Key) string {
	var b strings.Builder
	keys := f.keys(cases)
	usual, others := f.runs(keys)
	fmt.Fprintf(&b, "**%s**, driver %s (CUDA %s), %s. Device copy: %.0f GB/s. Medians by CUDA events,\n", f.GPU, usual.Driver, usual.CUDA, usual.Date, usual.Copy)
	b.WriteString("operands on the device, random values; peers measured on the same machine.\n\n")
	b.WriteString("| Op | Case | Type | Time | Rate | Of copy | Fastest peer | Speed of peer's |\n|---|---|---|--:|--:|--:|---|--:|\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "| `%s` | %s | %s | ", key.Op, cell(key.Case), long(key.Dtype))
		r, ok := f.Row(key)
		if !ok {
			b.WriteString("not measured | | | | |\n")
			continue
		}
		fmt.Fprintf(&b, "%s | %s | %s | %s | %s |\n", Micros(r.Micros), r.Rate(), f.OfCopy(r), f.peer(r), f.OfPeer(r))
	}
	b.WriteString(others)
	fmt.Fprintf(&b, "\nTests and sanitizers: %s.\n", f.outcome())
	return b.String()
}

// runs returns the run of most of the rows, as far as a reader tells runs apart, by driver and
// date, and a line for each other run, with its rows.
func (f *File) runs(keys []Key) (usual Run, others string) {
	of, all := map[string][]string{}, map[string]Run{}
	name := func(r Run) string { return fmt.Sprintf("%s, driver %s", r.Date, r.Driver) }
	for _, k := range keys {
		if r, ok := f.Row(k); ok {
			run := *cmp.Or(r.Run, &f.Run)
			of[name(run)] = append(of[name(run)], fmt.Sprintf("`%s` %s %s", r.Op, cell(r.Case), long(r.Dtype)))
			all[name(run)] = run
		}
	}
	usual = f.Run
	names := slices.Sorted(maps.Keys(of))
	for _, n := range names {
		if len(of[n]) > len(of[name(usual)]) {
			usual = all[n]
		}
	}
	for _, n := range names {
		if n != name(usual) {
			others += fmt.Sprintf("\nMeasured on %s: %s.\n", n, strings.Join(of[n], ", "))
		}
	}
	return usual, others
}

// keys returns the given cases and then those of the file's other rows, without numbered versions,
// which the programs in examples show.
func (f *File) keys(cases []Key) []Key {
	keys := slices.Clone(cases)
	for _, r := range f.Rows {
		if r.Version > 0 || slices.Contains(keys, r.Key) {
			continue
		}
		at := len(keys) // beside its op's others
		for i, k := range keys {
			if k.Op == r.Op {
				at = i + 1
			}
		}
		keys = slices.Insert(keys, at, r.Key)
	}
	return keys
}

// OfCopy prints a row's rate as a share of device copy's bandwidth; "" for a row that is bound by
// arithmetic or not complete.
func (f *File) OfCopy(r Row) string {
	bandwidth := f.Copy
	if r.Run != nil {
		bandwidth = r.Run.Copy
	}
	if r.Arithmetic() || bandwidth == 0 || !r.Complete() {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*r.GBs()/bandwidth)
}

// OfPeer prints a row's speed as a share of the fastest peer's; "" without
// one, and for a row that is not complete.
func (f *File) OfPeer(r Row) string {
	p, ok := f.Best(r.Key)
	if !ok || !r.Complete() {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*p.Micros/r.Micros)
}

func (f *File) peer(r Row) string {
	p, ok := f.Best(r.Key)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s, %s", p.By, Micros(p.Micros))
}

// outcome counts the suites by result and names those that failed.
func (f *File) outcome() string {
	passed, cut := 0, 0
	var failed []string
	for _, s := range f.Suites {
		switch s.Result {
		case "PASS":
			passed++
		case "CUT":
			cut++
		case "FAIL":
			if s.Known != "" {
				s.Name += " (" + s.Known + ")"
			}
			failed = append(failed, s.Name)
		}
	}
	text := fmt.Sprintf("%d of %d suites pass", passed, len(f.Suites))
	if cut > 0 {
		text += fmt.Sprintf("; %d ran out of time with no failure until then", cut)
	}
	if len(failed) > 0 {
		text += "; failed: " + strings.Join(failed, ", ")
	}
	return text
}

// Micros prints a time of that many microseconds with three digits.
func Micros(us float64) string {
	unit := "us"
	if us >= 1000 {
		us, unit = us/1000, "ms"
	}
	switch {
	case us < 10:
		return fmt.Sprintf("%.2f %s", us, unit)
	case us < 100:
		return fmt.Sprintf("%.1f %s", us, unit)
	}
	return fmt.Sprintf("%.0f %s", us, unit)
}

func long(dtype string) string { return strings.Replace(dtype, "f", "float", 1) }

// cell escapes text for a cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
