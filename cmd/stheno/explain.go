package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// explain shows the programs that the compiler makes of a graph.
type explain struct {
	Graph   string   `arg:"" optional:"" help:"Name of a graph, or the beginning of one: mlp, softmax, \"layer norm/16384x128\". Without it, the names are listed."`
	Pass    []string `placeholder:"NAME" help:"Show the program after this pass only; may be given several times."`
	Summary bool     `help:"Show a line a pass in numbers instead of the programs."`
	Host    bool     `help:"Compile for the processor even where there is a GPU."`
}

func (explain) Help() string {
	return `Compiles a graph that comes with this program, for GPU 0 or else for the processor, and prints the program
as it was lowered from Gorgonia's ops and after each pass of the compiler. A line an instruction: its
result, what it does, and the nodes of the graph that it is for. In a program of your own, vm.Explain(os.Stdout)
prints the same of any graph.

With --summary, for each pass: the instructions; the steps, which are the launches on the device and ops that
run on the host; the copies between host and device; the bytes that all steps read and write at
least; and the bytes of all values, if each had memory of its own.`
}

// Run explains a graph, or lists them.
func (e explain) Run(c *console) error {
	if e.Graph == "" {
		if len(e.Pass) > 0 || e.Summary || e.Host {
			return usageErrorf("got no graph, want the name of one with --pass, --summary and --host")
		}
		return printNames(c.out, graphspec.All(), graphName)
	}
	g, err := findGraph(e.Graph)
	if err != nil {
		return err
	}
	in := make([]gorgonia.Value, len(g.Inputs)) // zero: nothing runs
	for i, input := range g.Inputs {
		in[i], _ = values.New(kernels.Float32, input.Shape)
	}
	vm, err := machine(g, in, e.Host)
	if err != nil {
		return err
	}
	defer vm.Close()
	passes, err := vm.Passes()
	if err != nil {
		return err
	}
	names := make([]string, len(passes))
	for i, p := range passes {
		names[i] = p.Pass
	}
	for _, want := range e.Pass {
		if !slices.Contains(names, want) {
			return usageErrorf("--pass: got %q, want one of %s", want, strings.Join(names, ", "))
		}
	}
	fmt.Fprintf(c.out, "%s on %s\n\n", graphName(g), vm.Device())
	if e.Summary {
		return e.summarize(c, passes)
	}
	return e.programs(c, vm)
}

// machine makes one for a graph: for GPU 0 or else for the processor, or at once for that.
func machine(g graphspec.Case, in []gorgonia.Value, host bool, more ...cudaops.Option) (*cudaops.VM, error) {
	graph, _ := g.Graph(in)
	where := cudaops.OnAny()
	if host {
		where = cudaops.OnHost()
	}
	vm, err := cudaops.NewVM(graph, append(more, where)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", graphName(g), err)
	}
	return vm, nil
}

// wants reports whether a pass is selected.
func (e explain) wants(pass string) bool { return len(e.Pass) == 0 || slices.Contains(e.Pass, pass) }

// programs prints the program after each selected pass.
func (e explain) programs(c *console, vm *cudaops.VM) error {
	var text bytes.Buffer
	if err := vm.Explain(&text); err != nil {
		return err
	}
	for section := range strings.SplitSeq(strings.TrimPrefix(text.String(), "== "), "\n== ") {
		if name, _, _ := strings.Cut(section, "\n"); e.wants(name) {
			fmt.Fprintf(c.out, "== %s\n", section)
		}
	}
	return nil
}

// summarize prints the sizes of the programs.
func (e explain) summarize(c *console, passes []cudaops.PassReport) error {
	lines := [][]string{{"pass", "instructions", "steps", "copies", "MB moved", "MB of values"}}
	for _, p := range passes {
		if e.wants(p.Pass) {
			lines = append(lines, []string{p.Pass, fmt.Sprint(p.Instructions), fmt.Sprint(p.Steps), fmt.Sprint(p.Copies),
				fmt.Sprintf("%.1f", float64(p.Traffic)/1e6), fmt.Sprintf("%.1f", float64(p.Values)/1e6)})
		}
	}
	return printTable(c, lines)
}

// graphName is a graph's name on the command line.
func graphName(g graphspec.Case) string { return g.Name + "/" + g.Size }

// findGraph returns the first graph whose name, with its size, begins with the words of a text. Letters may be of either case, and all other
// characters count as one space.
func findGraph(name string) (graphspec.Case, error) {
	all, want := graphspec.All(), words(name)
	for _, g := range all {
		if want != "" && strings.HasPrefix(words(graphName(g))+" ", want+" ") {
			return g, nil
		}
	}
	var names []string
	for _, g := range all {
		if !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	return graphspec.Case{}, usageErrorf("got graph %q, want one of %s; \"stheno explain\" lists their sizes too", name, strings.Join(names, "; "))
}

// words returns the letters and digits of a text in lower case, with one space between words.
func words(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), " ")
}
