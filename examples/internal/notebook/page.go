package notebook

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// Options are the flags that every program has.
type Options struct {
	HTML   string // -html: the page to write, "" for none
	Out    string // -out: the folder of the figures as PNG, "" for none
	Device string // -device: auto, gpu or cpu; "" is auto
	Small  bool   // -small: sizes that a test can wait for
	Record string // -record: where to write the GPU's figures, "" for nowhere
}

// Main is the body of a program's main function: it parses the flags, runs the notebook with its text
// on standard output, and ends the program on an error. files are those of the program that it
// embeds: the Go files that it shows and recorded.json, which -record wrote on a GPU, if there is
// one. The program defines its own flags before, with package flag.
func Main(title string, files fs.FS, run func(p *Page)) {
	var o Options
	flag.StringVar(&o.HTML, "html", "", "page to write: one file with text, sources, tables and figures")
	flag.StringVar(&o.Out, "out", "out", "folder of the figures")
	flag.StringVar(&o.Device, "device", "auto", "where to run: auto, gpu or cpu")
	flag.BoolVar(&o.Small, "small", false, "small sizes, for tests")
	flag.StringVar(&o.Record, "record", "", "file to write the GPU's figures to (recorded.json)")
	program := filepath.Base(os.Args[0])
	command.Flags(program)
	command.Exit(program, Run(o, os.Stdout, title, files, run))
}

// Run runs a notebook: its text goes to w as it comes, and the page, the figures and the record to
// the places in the options. It returns the error that ended the notebook: see [Check].
func Run(o Options, w io.Writer, title string, files fs.FS, run func(p *Page)) error {
	return Try(func() {
		p := begin(o, w, title, files)
		defer func() { os.RemoveAll(p.folder) }()
		run(p)
		p.credit()
		if o.HTML != "" {
			p.save()
			fmt.Fprintln(w, "wrote", o.HTML)
		}
		if o.Record != "" {
			Check(p.measured.save(o.Record))
			fmt.Fprintln(w, "wrote", o.Record)
		}
	})
}

// A failure is an error that ends a notebook.
type failure struct{ error }

// Check ends the notebook if there is an error: no function of a notebook returns one.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Fail ends the notebook with an error, formatted as by fmt.Errorf.
func Fail(format string, a ...any) { Check(fmt.Errorf(format, a...)) }

// Must returns a value, or ends the notebook if there is an error.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Try calls a function of a notebook and returns the error that ended it, nil for none.
func Try(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// within calls f. An error that ends f gets the prefix what.
func within(what string, f func()) {
	if err := Try(f); err != nil {
		Fail("%s: %w", what, err)
	}
}

// begin returns a page with its title on it.
func begin(o Options, w io.Writer, title string, files fs.FS) *Page {
	gpu, where, err := Device(o.Device)
	Check(err)
	switch {
	case o.Record != "" && gpu == nil:
		Fail("-record keeps a GPU's figures, but: %s", where)
	case o.Record != "" && o.Small:
		Check(command.Misused("-record keeps figures of the full sizes, got -small too"))
	}
	p := &Page{options: o, title: title, files: files, gpu: gpu, terminal: w, names: map[string]bool{}, recorded: Must(readRecord(files)),
		measured: newRecord(gpu), benchmarks: map[string]published{}, unmeasured: map[string]Case{}}
	fmt.Fprintf(w, "%s\n%s\n\n", where, title)
	p.add("title", map[string]any{"Title": spans(title), "Where": spans(where), "Date": time.Now().UTC().Format(time.DateOnly)})
	return p
}

// Missing is a figure that a notebook shows and that is recorded nowhere.
type Missing struct {
	Key  string
	Case Case // of the benchmarks, if it is said to be one
}

// Unrecorded returns the figures, in the order of their keys, that a notebook asks for and that
// neither its record nor bench/results has: without a GPU they print as -. It runs the notebook on
// the host with small sizes, but, see [Page.Timed], it asks for everything that is measured on a
// GPU. twice are those that both have.
func Unrecorded(files fs.FS, run func(p *Page)) (missing []Missing, twice []string, err error) {
	var p *Page
	if err := Try(func() {
		p = begin(Options{Device: "cpu", Small: true}, io.Discard, "", files)
		run(p)
	}); err != nil {
		return nil, nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(p.measured.keys)) {
		_, published := p.benchmarks[key]
		switch recorded := p.recorded.has(key); {
		case published && recorded:
			twice = append(twice, key)
		case !published && !recorded:
			missing = append(missing, Missing{key, p.unmeasured[key]})
		}
	}
	return missing, twice, nil
}

// Device chooses the device that -device names: auto, gpu or cpu. It is nil for the host. where
// prints a line that names the device, or why no GPU is used.
func Device(choice string) (gpu *cudaops.Device, where string, err error) {
	host := "Running on " + theHost()
	switch choice {
	case "", "auto", "gpu":
	case "cpu":
		return nil, host + ", as -device says", nil
	default:
		return nil, "", command.Misused("-device is %q, want auto, gpu or cpu", choice)
	}
	devices, err := cudaops.Devices()
	if err == nil {
		err = devices[0].Err
	}
	if choice != "gpu" && errors.Is(err, cudaops.ErrNoDevice) {
		return nil, fmt.Sprintf("%s, on no GPU: %v", host, err), nil
	}
	if err != nil {
		return nil, "", err
	}
	d := devices[0]
	target, _, err := kernels.Target(d.Major, d.Minor)
	if err != nil {
		return nil, "", err
	}
	return &d, fmt.Sprintf("Running on %v with the kernel images for %s", d, target), nil
}

func theHost() string {
	return fmt.Sprintf("the host (%s/%s, %d cores)", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
}

// source returns the text of a file of kernels or of kernels/versions.
func source(file string) ([]byte, error) {
	if name, ok := strings.CutPrefix(file, "versions/"); ok {
		return versions.Library().Source(name)
	}
	return kernels.Source(file)
}

// Page is a notebook while it runs. Its methods write to the terminal at once and to the HTML page
// at the end. A page is for one goroutine.
type Page struct {
	options  Options
	title    string
	files    fs.FS
	gpu      *cudaops.Device
	terminal io.Writer
	body     bytes.Buffer // HTML
	names    map[string]bool
	recorded *record
	measured *record
	noted    bool // the page has named the source of recorded figures
	folder   string

	benchmarks map[string]published // the times from bench/results, by their keys
	unmeasured map[string]Case      // cases that bench/results does not have
}

// GPU is the device to run on, nil for the host.
func (p *Page) GPU() *cudaops.Device { return p.gpu }

// Folder returns a folder that is removed when the notebook ends.
func (p *Page) Folder() string {
	if p.folder == "" {
		p.folder = Must(os.MkdirTemp("", "notebook"))
	}
	return p.folder
}

// Where names the device that the notebook runs on, for captions of figures that depend on it.
func (p *Page) Where() string {
	if p.gpu == nil {
		return theHost()
	}
	return p.gpu.Name
}

// On returns the option of a VM that runs where the notebook does.
func (p *Page) On() cudaops.Option {
	if p.gpu == nil {
		return cudaops.OnHost()
	}
	return cudaops.OnDevice(p.gpu.Ordinal)
}

// Small reports whether sizes must be small, for a test.
func (p *Page) Small() bool { return p.options.Small }

// Size returns a size for this run: full on a GPU, else host or, in a test, small.
func (p *Page) Size(full, host, small int) int {
	switch {
	case p.Small():
		return small
	case p.gpu == nil:
		return host
	}
	return full
}

// Tiny reports whether the GPU's times are of small sizes. Without a GPU they are not: recorded
// times are of the full sizes.
func (p *Page) Tiny() bool { return p.Small() && p.gpu != nil }

// Timed returns the size that the GPU's times are of: that of the run, or of the record.
func (p *Page) Timed(full, small int) int {
	if p.Tiny() {
		return small
	}
	return full
}

// Heading starts a section.
func (p *Page) Heading(text string) {
	fmt.Fprintf(p.terminal, "\n%s\n%s\n\n", figure.Typeset(text), strings.Repeat("-", len([]rune(figure.Typeset(text)))))
	p.add("heading", spans(text))
}

// Text adds a paragraph, formatted as by fmt.Sprintf. Line breaks and
// indentation count as a space; `code`, [text](link) and powers such as 2^28 are understood.
func (p *Page) Text(format string, args ...any) {
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	fmt.Fprintf(p.terminal, "%s\n\n", figure.Wrap(text, 100))
	p.add("paragraph", spans(text))
}

// Source shows functions, structs and macros of a kernel's CUDA source with the comments above them,
// as in Source("sum.cu", "sum_cols") or Source("versions/sum.cu", "thread_sum", "sum_tree").
func (p *Page) Source(file string, names ...string) {
	text := string(Must(source(file)))
	for _, name := range names {
		within("kernels/"+file, func() { p.preformatted("kernels/"+file, Must(definition(text, name)), figure.CUDA()) })
	}
}

// GoSource shows Go code.
func (p *Page) GoSource(text string) { p.preformatted("", text, lexers.Get("go")) }

// GoFunction shows functions of one of the program's Go files, with their comments.
func (p *Page) GoFunction(file string, names ...string) {
	text := string(Must(fs.ReadFile(p.files, file)))
	for _, name := range names {
		_, rest, ok := strings.Cut(text, "\n// "+name+" ")
		body, _, end := strings.Cut(rest, "\n}\n")
		if !ok || !end {
			Fail("%s has no function %s to show", file, name)
		}
		p.GoSource("// " + name + " " + body + "\n}")
	}
}

// Listing shows preformatted text, such as the output of a program, with a caption or "" for none.
func (p *Page) Listing(caption, text string) { p.preformatted(caption, text, nil) }

// preformatted shows text in lines, coloured on the page if there is a lexer for it.
func (p *Page) preformatted(caption, text string, lexer chroma.Lexer) {
	text = strings.Trim(strings.ReplaceAll(text, "\t", "    "), "\n")
	fmt.Fprintf(p.terminal, "    %s\n\n", strings.ReplaceAll(text, "\n", "\n    "))
	if caption != "" {
		fmt.Fprintf(p.terminal, "    (%s)\n\n", caption)
	}
	p.add("code", map[string]any{"Caption": spans(caption), "Code": Must(figure.Highlight(lexer, text))})
}

// Table adds a table; a row may be shorter than the header.
func (p *Page) Table(t figure.Table) {
	fmt.Fprintln(p.terminal, t.Text())
	p.add("table", tableHTML(t))
}

// Figure adds panels with a caption, two by two where there are several. They are written to
// Options.Out/name.png too, and the terminal shows their data.
func (p *Page) Figure(name, caption string, panels ...figure.Panel) {
	if name == "" || strings.ContainsAny(name, `/\.`) || p.names[name] || len(panels) == 0 {
		Fail("figure %q of %d panels: want a name without /, \\ and dot that no other figure has, and a panel", name, len(panels))
	}
	p.names[name] = true
	caption = strings.Join(strings.Fields(caption), " ")
	drawn, alone, err := figure.Drawings(panels)
	Check(err)
	for _, panel := range panels {
		if t := panel.Data(); len(t.Rows) > 0 {
			fmt.Fprintln(p.terminal, t.Text())
		}
	}
	fmt.Fprintf(p.terminal, "%s\n", figure.Wrap("Figure: "+caption, 100))
	if p.options.Out != "" {
		path := filepath.Join(p.options.Out, name+".png")
		Check(figure.Save(path, panels...))
		fmt.Fprintln(p.terminal, "wrote", path)
	}
	fmt.Fprintln(p.terminal)
	p.add("figure", map[string]any{"Name": name, "Caption": spans(caption), "Alone": alone, "Drawings": drawn})
}
