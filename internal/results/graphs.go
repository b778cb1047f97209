package results

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Graph holds the measurements of a whole graph beside the time of its launches.
type Graph struct {
	// Run is the median time of RunAll in microseconds, inputs copied to the device
	// and outputs from it.
	Run      float64 `json:"run_us"`
	Launches int     `json:"launches"`
	// Host is the number of ops that ran on the host, which the time of the launches
	// leaves out.
	Host int `json:"host_ops"`
	// Off is how far the worst learnable was, after checked training steps, from where steps on the host took it, as a share of
	// how far that is from where it began: the relative error of its gradients.
	Off float64 `json:"off,omitempty"`
	// Parts are what the launches add to the time of all, in order, where that was measured.
	Parts []Part `json:"parts,omitempty"`
}

// Part is the share of an instruction in the time of all launches of its program.
type Part struct {
	Op     string  `json:"op"`
	Shape  []int   `json:"shape"`    // of its result
	Micros float64 `json:"us"`       // that it adds
	Least  float64 `json:"least_us"` // that its bytes or its operations take at the device's peak
}

// String prints the launches and the time of a run.
func (g *Graph) String() string { return fmt.Sprintf("%s, run %s", g.launches(), Micros(g.Run)) }

func (g *Graph) launches() string {
	text := fmt.Sprintf("%d launches", g.Launches)
	if g.Launches == 1 {
		text = "1 launch"
	}
	if g.Host > 0 {
		text += fmt.Sprintf(", %d on the host", g.Host)
	}
	return text
}

// UpdateGraphs returns the text of docs/graphs.md with the tables of the given files and
// cases between the markers <!-- graphs:begin --> and <!-- graphs:end -->.
func UpdateGraphs(text string, files []*File, cases []Key) (string, error) {
	return graphTables(text, "graphs", "Graph", files, cases)
}

// UpdateSteps returns the text of docs/training.md with the tables of training steps between
// the markers <!-- steps:begin --> and <!-- steps:end -->.
func UpdateSteps(text string, files []*File, cases []Key) (string, error) {
	return graphTables(text, "steps", "Step", files, cases)
}

// UpdateParts returns the text of docs/training.md with tables of what the launches of the first step that has such times add, between the
// markers <!-- parts:begin --> and <!-- parts:end -->.
func UpdateParts(text string, files []*File, cases []Key) (string, error) {
	var tables []string
	for _, f := range files {
		for _, key := range f.keys(cases) {
			if r, ok := f.Row(key); ok && r.Graph != nil && len(r.Graph.Parts) > 0 {
				tables = append(tables, f.partTable(r))
				break
			}
		}
	}
	return Splice(text, "parts", cmp.Or(strings.Join(tables, "\n"), "Not measured yet.\n"))
}

// partTable is a table of the parts of a row.
func (f *File) partTable(r Row) string {
	var b strings.Builder
	date := f.Date
	if r.Run != nil {
		date = r.Run.Date
	}
	fmt.Fprintf(&b, "**%s**, %s, %s, %s, float32: %s.\n\n", f.GPU, cell(r.Op), cell(r.Case), date, r.Time())
	b.WriteString("| Launch | Result | Adds | Least |\n|---|---|--:|--:|\n")
	var adds, least float64
	for _, p := range r.Graph.Parts {
		op, _ := strings.CutPrefix(p.Op, "kernel ")
		if at := 70; len(op) > at {
			op = op[:at] + "..."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", cell(op), cell(strings.Trim(fmt.Sprint(p.Shape), "[]")), Micros(p.Micros), Micros(p.Least))
		adds, least = adds+p.Micros, least+p.Least
	}
	fmt.Fprintf(&b, "| all | | %s | %s |\n", Micros(adds), Micros(least))
	return b.String()
}

// graphTables puts tables of whole graphs between the markers of a name.
func graphTables(text, name, title string, files []*File, cases []Key) (string, error) {
	tables := make([]string, len(files))
	for i, f := range files {
		tables[i] = f.graphTable(title, cases)
	}
	return Splice(text, name, cmp.Or(strings.Join(tables, "\n"), "Not measured yet.\n"))
}

// graphTable is a table of the given cases and of the file's other rows, with a column
// for each peer.
func (f *File) graphTable(title string, cases []Key) string {
	var peers []string
	for _, p := range f.Peers {
		if !slices.Contains(peers, p.By) {
			peers = append(peers, p.By)
		}
	}
	var b strings.Builder
	keys := f.keys(cases)
	usual, others := f.runs(keys)
	fmt.Fprintf(&b, "**%s**, driver %s (CUDA %s), %s, float32. Device copy: %.0f GB/s.\n\n", f.GPU, usual.Driver, usual.CUDA, usual.Date, usual.Copy)
	b.WriteString(f.Since())
	fmt.Fprintf(&b, "| %s | Size | Launches | Device | Rate | Of copy |", title)
	for _, p := range peers {
		fmt.Fprintf(&b, " %s |", cell(p))
	}
	b.WriteString(" Of the fastest | Run |\n|---|---|---|--:|--:|--:|" + strings.Repeat("--:|", len(peers)) + "--:|--:|\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "| %s | %s | ", cell(key.Op), cell(key.Case))
		r, ok := f.Row(key)
		if !ok || r.Graph == nil {
			b.WriteString("not measured | | | |")
		} else {
			fmt.Fprintf(&b, "%s | %s | %s | %s |", r.Graph.launches(), r.Time(), r.Rate(), f.OfCopy(r))
		}
		for _, by := range peers {
			fmt.Fprintf(&b, " %s |", f.time(key, by))
		}
		if !ok || r.Graph == nil {
			b.WriteString(" | |\n")
			continue
		}
		fmt.Fprintf(&b, " %s | %s |\n", f.OfPeer(r), Micros(r.Graph.Run))
	}
	b.WriteString(others)
	return b.String()
}

// time prints a peer's time of a case, "" if there is none.
func (f *File) time(k Key, by string) string {
	for _, p := range f.Peers {
		if p.Key == k && p.By == by {
			return Micros(p.Micros)
		}
	}
	return ""
}
