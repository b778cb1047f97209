package records

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Grid is a Markdown table of lines of cells, of which the first has the titles. align has a letter for each column, l or r; the
// last letter counts for all that follow.
func Grid(align string, lines [][]string) string {
	var b strings.Builder
	for i, cells := range lines {
		for _, c := range cells {
			b.WriteString("| " + strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		for k := 0; i == 0 && k < len(cells); k++ {
			b.WriteString(map[byte]string{'l': "|---", 'r': "|--:"}[align[min(k, len(align)-1)]])
		}
		if i == 0 {
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// column is a column of a table of cases: of a case that was not measured, the cells of the key alone have a text.
type column struct {
	title, align string // "l" or "r"
	key          bool
	cell         func(r Record) string
}

// Columns that tables have in common.
var (
	opColumn   = column{"", "l", true, func(r Record) string { return r.Op }}
	codeColumn = column{"Op", "l", true, func(r Record) string { return "`" + r.Op + "`" }}
	caseColumn = column{"Case", "l", true, func(r Record) string { return r.Case }}
	typeColumn = column{"Type", "l", true, func(r Record) string { return Long(r.Dtype) }}
	timeColumn = column{"Time", "r", false, Record.Micros}
	rateColumn = column{"Rate", "r", false, Record.Rate}
	runColumn  = column{"Run", "r", false, func(r Record) string { return Micros(r.Values["run"]) }}
)

// titled returns the column with another title.
func (c column) titled(title string) column {
	c.title = title
	return c
}

// table has a line for each case.
func (f *File) table(keys []Key, columns ...column) string {
	align, lines := "", make([][]string, 1+len(keys))
	for _, c := range columns {
		align, lines[0] = align+c.align, append(lines[0], c.title)
	}
	for i, key := range keys {
		r, ok := f.Time(key)
		if !ok {
			r.Key = key
		}
		missing := cmp.Or(f.fault(key), "not measured")
		for _, c := range columns {
			text := missing
			if ok || c.key {
				text = c.cell(r)
			} else {
				missing = ""
			}
			lines[i+1] = append(lines[i+1], text)
		}
	}
	return Grid(align, lines)
}

// fault says why a case has no time, "" if no fault of it is known.
func (f *File) fault(key Key) string {
	for _, r := range f.Of(Fault) {
		if r.Key == key {
			return "failed: " + r.Note
		}
	}
	return ""
}

// checked counts the ops whose cases are right, and names the others with their errors.
func (f *File) checked() string {
	checks, list := f.Of(Check), ""
	var wrong []string
	for _, r := range f.Of(Fault) {
		if r.Case == "" {
			wrong = append(wrong, fmt.Sprintf("\n- `%s` failed: %s", r.Op, strings.Join(strings.Fields(r.Note), " ")))
		}
	}
	if len(checks)+len(wrong) > 0 {
		list = fmt.Sprintf("\nOf %d ops, whose cases are compared with their references, %d are right.\n", len(checks)+len(wrong), len(checks))
	}
	if len(wrong) > 0 {
		list += strings.Join(wrong, "") + "\n"
	}
	return list
}

// keys returns the given cases and then the other ones that the file has times of, without numbered versions,
// which the programs in examples show.
func (f *File) keys(cases []Key) []Key {
	keys := slices.Clone(cases)
	for _, r := range f.Of(Time) {
		if r.Values["version"] > 0 || slices.Contains(keys, r.Key) {
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

// runs returns the run of most of the cases, as far as a reader tells runs apart, by driver and
// date, and a line for each other run, with its cases.
func (f *File) runs(keys []Key) (usual Run, others string) {
	of, all := map[string][]string{}, map[string]Run{}
	name := func(r Run) string { return fmt.Sprintf("%s, driver %s", r.Date, r.Driver) }
	for _, k := range keys {
		if r, ok := f.Time(k); ok {
			run := f.RunOf(r)
			of[name(run)] = append(of[name(run)], fmt.Sprintf("`%s` %s %s", r.Op, strings.ReplaceAll(r.Case, "|", `\|`), Long(r.Dtype)))
			all[name(run)] = run
		}
	}
	usual = f.Head()
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

// heading names the GPU and a run.
func (f *File) heading(r Run) string {
	return fmt.Sprintf("**%s**, driver %s (CUDA %s), %s", f.GPU, r.Driver, r.CUDA, r.Date)
}

// Since names, as a paragraph, the sources of kernels that the file's cases ran and that the tree has others of; "" if there are none.
func (f *File) Since() string {
	if f.Tree == nil {
		return ""
	}
	var changed []string
	for _, r := range f.Records {
		if r.Kind != Suite {
			changed = append(changed, r.Kernels.Changed(f.Tree)...)
		}
	}
	if len(changed) == 0 {
		return ""
	}
	slices.Sort(changed)
	return "Since then these kernels have changed: `" + strings.Join(slices.Compact(changed), "`, `") + "`.\n\n"
}

// Speed is the table of ops.
func Speed(f *File, cases []Key) string {
	outcome := f.checked()
	if len(f.Of(Suite)) > 0 || outcome == "" {
		outcome += fmt.Sprintf("\nTests and sanitizers: %s.\n", f.outcome())
	}
	if len(f.Of(Time)) == 0 {
		return f.heading(f.Head()) + ".\n" + outcome
	}
	keys := f.keys(cases)
	usual, others := f.runs(keys)
	return fmt.Sprintf("%s. Device copy: %.0f GB/s. Medians by CUDA events,\n", f.heading(usual), usual.Copy) +
		"operands on the device, random values; peers measured on the same machine.\n\n" + f.Since() +
		f.table(keys, codeColumn, caseColumn, typeColumn, timeColumn, rateColumn, column{"Of copy", "r", false, f.OfCopy},
			column{"Fastest peer", "l", false, f.peer}, column{"Speed of peer's", "r", false, f.OfPeer}) +
		others + outcome
}

// outcome counts the suites by result and names those that failed, with what is known of them.
func (f *File) outcome() string {
	suites := f.Of(Suite)
	passed, cut := 0, 0
	failed := map[string][]string{} // keyed by Record.Known
	for _, s := range suites {
		switch s.Result {
		case "PASS":
			passed++
		case "CUT":
			cut++
		case "FAIL":
			failed[s.Known] = append(failed[s.Known], s.Suite())
		}
	}
	text := fmt.Sprintf("%d of %d suites pass", passed, len(suites))
	if cut > 0 {
		text += fmt.Sprintf("; %d ran out of time with no failure until then", cut)
	}
	for _, known := range slices.Sorted(maps.Keys(failed)) {
		if text += "; failed: " + strings.Join(failed[known], ", "); known != "" {
			text += " (" + known + ")"
		}
	}
	return text
}

// StepSpeed is the short table of training steps: those by SGD in float32, with the batch on the device.
func StepSpeed(f *File, cases []Key) string {
	cases = slices.DeleteFunc(slices.Clone(cases), func(k Key) bool { return !strings.HasSuffix(k.Op, ", SGD") })
	return f.heading(f.Head()) + ", float32. Forward, loss, backward and update, all launches together. The peer is the fastest of\n" +
		"PyTorch, eager, captured, and compiled and captured, and JAX.\n\n" + f.Since() +
		f.table(cases, opColumn.titled("Training step"), caseColumn.titled("Size"), timeColumn, column{"Fastest peer", "l", false, f.peer}, column{"Speed of peer's", "r", false, f.OfPeer})
}

// GraphTimes is the table of whole graphs, with a column for each peer.
func GraphTimes(f *File, cases []Key) string { return f.graphs("Graph", cases) }

// StepTimes is the same table of training steps.
func StepTimes(f *File, cases []Key) string { return f.graphs("Step", cases) }

func (f *File) graphs(title string, cases []Key) string {
	columns := []column{opColumn.titled(title), caseColumn.titled("Size"), {"Launches", "l", false, Record.Launches}, timeColumn.titled("Device"), rateColumn, {"Of copy", "r", false, f.OfCopy}}
	var peers []string
	for _, p := range f.Of(Peer) {
		if !slices.Contains(peers, p.By) {
			peers = append(peers, p.By)
			columns = append(columns, column{p.By, "r", false, func(r Record) string { return f.timeBy(r.Key, p.By) }})
		}
	}
	keys := f.keys(cases)
	usual, others := f.runs(keys)
	return fmt.Sprintf("%s, float32. Device copy: %.0f GB/s.\n\n", f.heading(usual), usual.Copy) + f.Since() +
		f.table(keys, append(columns, column{"Of the fastest", "r", false, f.OfPeer}, runColumn)...) + others
}

// Parts is the table of what the launches of the first case that has such times add; "" if there is none.
func Parts(f *File, cases []Key) string {
	for _, key := range f.keys(cases) {
		lines := [][]string{{"Launch", "Result", "Adds", "Least"}}
		var adds, least float64
		for _, p := range f.Of(Part) {
			if p.Key != key {
				continue
			}
			op, _ := strings.CutPrefix(p.By, "kernel ")
			if at := 70; len(op) > at {
				op = op[:at] + "..."
			}
			lines = append(lines, []string{"`" + op + "`", p.Note, Micros(p.Us), Micros(p.Values["least"])})
			adds, least = adds+p.Us, least+p.Values["least"]
		}
		if r, ok := f.Time(key); ok && len(lines) > 1 {
			return fmt.Sprintf("**%s**, %s, %s, %s, float32: %s.\n\n", f.GPU, r.Op, r.Case, f.RunOf(r).Date, r.Micros()) +
				Grid("llr", lines) + fmt.Sprintf("| all | | %s | %s |\n", Micros(adds), Micros(least))
		}
	}
	return ""
}

// PrecisionTimes is the table of the steps that are timed in several precisions: their times and the errors of their gradients.
func PrecisionTimes(f *File, cases []Key) string {
	lines := [][]string{{"Step", "Size", "Time in float32", "TF32", "BF16", "Gradients off in float32", "TF32", "BF16"}}
	for _, key := range cases {
		name, reduced := strings.CutSuffix(key.Op, ", BF16")
		if !reduced {
			continue
		}
		line := []string{name, key.Case, "not measured", "not measured", "not measured", "", "", ""}
		for i, by := range []string{"", ", TF32", ", BF16"} {
			if r, ok := f.Time(Key{name + by, key.Case, key.Dtype}); ok {
				line[2+i] = r.Micros()
				if r.Values["off"] > 0 {
					line[5+i] = fmt.Sprintf("%.1e", r.Values["off"])
				}
			}
		}
		lines = append(lines, line)
	}
	return f.heading(f.Head()) + ".\n\n" + f.Since() + Grid("llr", lines)
}

// SpecialTimes is the op of times with special operands.
const SpecialTimes = "MatMul with special operands"

// Errors are the tables of the errors of products, and of times with special operands: a line for each kind of these and a
// column for each size, the time as a multiple of that of the usual operands, the first kind.
func Errors(f *File, _ []Key) string {
	lines, by := [][]string{{"Operands", "m x k x n", "Stheno", "by FMA alone", "cuBLAS"}}, ""
	at := map[Key]int{} // the line of a case
	for _, r := range f.Of(Error) {
		if at[r.Key] == 0 {
			i := strings.LastIndex(r.Case, ", ")
			at[r.Key], lines = len(lines), append(lines, []string{r.Case[:i], r.Case[i+2:], "", "", ""})
		}
		column := map[string]int{"": 2, FMA: 3}[r.By]
		if column == 0 {
			column, by = 4, "; beside "+r.By
		}
		lines[at[r.Key]][column] = errorCell(r.Values)
	}
	text := f.heading(f.Head()) + by + ".\n\n" + f.Since() + Grid("llr", lines) + "\n"
	var special [][]string // the first line, of the usual operands, is the header
	usual := map[string]float64{}
	for _, r := range f.Of(Time) {
		size, kind, _ := strings.Cut(r.Case, ", ")
		i := slices.IndexFunc(special, func(line []string) bool { return line[0] == kind })
		if i < 0 {
			i, special = len(special), append(special, []string{kind})
		}
		cell := fmt.Sprintf("%.2f x", r.Us/usual[size])
		if i == 0 {
			usual[size], cell = r.Us, size
		}
		special[i] = append(special[i], cell)
	}
	if len(special) > 0 {
		special[0][0] = "Elements of A, beside " + special[0][0]
		text += Grid("lr", special)
	}
	return text
}

// FMA is what a product is computed by in records of errors by FMA alone.
const FMA = "FMA"

// errorCell prints the largest and the mean error, and how many elements are wrong.
func errorCell(v map[string]float64) string {
	var parts []string
	if v["largest"] != 0 {
		parts = append(parts, fmt.Sprintf("%.3g, %.3g", v["largest"], v["mean"]))
	}
	if v["wrong"] > 0 {
		parts = append(parts, fmt.Sprintf("%.0f wrong", v["wrong"]))
	}
	return cmp.Or(strings.Join(parts, ", "), "0")
}

// Splice replaces the text between <!-- marker:begin --> and <!-- marker:end -->, each on a line of its own.
func Splice(text, marker, table string) (string, error) {
	begin, end := "<!-- "+marker+":begin -->\n", "<!-- "+marker+":end -->"
	head, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no %q after %q", end, strings.TrimSpace(begin))
	}
	return head + begin + table + end + tail, nil
}
