package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// maintainers holds the commands that maintain the repository's records. They run in its root.
type maintainers struct {
	Check  checkEvidence `cmd:"" help:"Compare the records of GPUs with the kernels of this build."`
	Suites listSuites    `cmd:"" help:"List the test suites that must run on a GPU."`
	Cases  listCases     `cmd:"" help:"List the cases of a set."`
	Record recordCases   `cmd:"" help:"Measure on this machine's GPU the cases of a set that lack a record."`
	Passed recordPassed  `cmd:"" help:"Record the suites that passed, of one or several calls of bench/gpu-run.sh that did not end."`
	Merge  merge         `cmd:"" help:"Add files of results to the recorded ones."`
	Tables tables        `cmd:"" help:"Write the tables of README.md and docs from the records and from the ops, and the plot of drawn cases."`
}

func (maintainers) Help() string {
	return `These commands read and write the repository, in whose root they run. CONTRIBUTING.md explains when they are
wanted; bench/gpu-run.sh calls most of them.`
}

// recorded is the flag for the folder of the records.
type recorded struct {
	Recorded string `default:"bench/results" placeholder:"FOLDER" type:"path" help:"Folder of the records (default: ${default})."`
}

// checkEvidence compares the records of GPUs with the kernels of this build.
type checkEvidence struct{ recorded }

func (checkEvidence) Help() string {
	return `Names each case of an op and each suite of tests that no GPU has run with the kernels of this build; the exit
status is 1 if there is any.`
}

// Run prints the missing records.
func (e checkEvidence) Run(c *console) error {
	files, err := maintain.Read(e.Recorded, records.Ops)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no results in %s, want a .json file for each GPU", filepath.Join(e.Recorded, records.Ops))
	}
	if err != nil {
		return err
	}
	stale, missing := maintain.Check(files)
	if stale == nil && missing == nil {
		fmt.Fprintln(c.out, "everything has run with these kernels")
	}
	return errors.Join(stale, missing)
}

// of reads the record of a GPU, by default that of this machine's first.
func (r recorded) of(set, gpu string) (*records.File, error) {
	if gpu == "" {
		device, err := onDevice{}.open("--gpu names the GPU of another machine")
		if err != nil {
			return nil, err
		}
		gpu = device.Name
	}
	return maintain.Recorded(r.Recorded, set, gpu)
}

// listSuites lists the suites that must run on a GPU.
type listSuites struct {
	recorded
	GPU    string `name:"gpu" xor:"gpu" placeholder:"NAME" help:"Name of the GPU (default: that of this machine's first)."`
	All    bool   `xor:"gpu" help:"List all suites, as if nothing were recorded."`
	Passed string `placeholder:"FILE" type:"existingfile" help:"Leave out suites that passed according to this file, which bench/gpu-run.sh wrote."`
}

func (listSuites) Help() string {
	return `A line each, with tabs between: name, tool, test program, -test.run or -, part and kernels. Left out are the
suites that are recorded with the kernels of this build.`
}

// Run prints the suites.
func (l listSuites) Run(c *console) error {
	var ran []records.Record
	if !l.All {
		file, err := l.of(records.Ops, l.GPU)
		if err != nil {
			return err
		}
		ran = file.Of(records.Suite)
	}
	passed, err := records.ReadSuites(l.Passed)
	if err != nil {
		return err
	}
	wanted, err := maintain.Suites()
	if err != nil {
		return err
	}
	for _, s := range wanted {
		if s.State(ran) != maintain.Current && s.State(passed) != maintain.Current {
			fmt.Fprintf(c.out, "%s\t%s\t%s\t%s\t%s\t%v\n", s.Suite(), s.By, s.Binary, cmp.Or(s.Tests, "-"), cmp.Or(s.Case, "1/1"), s.Kernels)
		}
	}
	return nil
}

// caseSet chooses cases of a set.
type caseSet struct {
	recorded
	Set      string  `arg:"" enum:"ops,graphs,steps,products" help:"One of ops, graphs, steps, and products, whose errors are measured."`
	Chosen   pattern `name:"run" placeholder:"REGEXP" help:"Only the cases whose name has a match of this regular expression."`
	Text     string  `placeholder:"FILE" type:"existingfile" help:"Of ops: also the histogram of this text, repeated to 5.8 MB."`
	Versions bool    `help:"Of ops: also the numbered versions."`
}

// cases returns those that the flags choose.
func (s caseSet) cases() ([]maintain.Case, error) {
	all := maintain.Cases(s.Set, s.Versions)
	if s.Text != "" && s.Set == records.Ops {
		text, err := maintain.Text(s.Text)
		if err != nil {
			return nil, fmt.Errorf("--text: %w", err)
		}
		all = append(all, text)
	}
	return s.Chosen.choose(all)
}

// lacking returns those of the cases of a set that a GPU has no record of, or one of other kernels.
func (r recorded) lacking(set, gpu string, cases []maintain.Case) ([]maintain.Case, error) {
	file, err := r.of(set, gpu)
	if err != nil {
		return nil, err
	}
	tree, err := maintain.Tree()
	return slices.DeleteFunc(cases, func(c maintain.Case) bool { return maintain.Measured(file, c.Key(), tree) }), err
}

// listCases lists cases.
type listCases struct {
	caseSet
	Missing  bool   `help:"Only the cases that have no record for a GPU, or one of other kernels."`
	GPU      string `name:"gpu" placeholder:"NAME" help:"Name of the GPU for --missing (default: that of this machine's first)."`
	JSON     bool   `name:"json" help:"Describe the cases for other libraries, as JSON."`
	Operands string `placeholder:"FOLDER" type:"existingdir" help:"Of products: also write their operands into files of this folder."`
}

// Run prints the names of cases, or their descriptions.
func (l listCases) Run(c *console) error {
	cases, err := l.cases()
	if err != nil {
		return err
	}
	if l.GPU != "" && !l.Missing {
		return usageErrorf("got --gpu without --missing, want both or neither")
	}
	if l.Missing {
		if cases, err = l.lacking(l.Set, l.GPU, cases); err != nil {
			return err
		}
	}
	for _, one := range cases {
		if p, ok := one.(maintain.Product); ok && l.Operands != "" {
			if err := p.WriteOperands(l.Operands); err != nil {
				return err
			}
		}
	}
	if l.JSON {
		return describeCases(c.out, cases)
	}
	return printNames(c.out, cases, caseName)
}

// describeCases prints the descriptions of cases as JSON, one a line.
func describeCases(w io.Writer, cases []maintain.Case) error {
	var lines []string
	for _, one := range cases {
		d := one.Describe()
		if d == nil {
			continue
		}
		text, err := json.Marshal(d)
		if err != nil {
			return err
		}
		lines = append(lines, "\n"+string(text))
	}
	if len(lines) > 0 {
		lines[len(lines)-1] += "\n"
	}
	_, err := fmt.Fprintf(w, "[%s]\n", strings.Join(lines, ","))
	return err
}

// recordCases measures cases for the record.
type recordCases struct {
	caseSet
	timing
	onDevice
	All    bool   `help:"Also the cases that have a record with the kernels of this build."`
	Peers  string `placeholder:"PATH" type:"path" help:"Add the times of other libraries, which bench/peers.py wrote into this file; of products the results, which bench/accuracy_peers.py wrote into this folder."`
	Suites string `placeholder:"FILE" type:"existingfile" help:"Of ops: add the outcomes of test suites, which bench/gpu-run.sh wrote."`
	JSON   string `name:"json" required:"" placeholder:"FILE" type:"path" help:"File to write the results to; in a folder, one named after the GPU."`
}

// Run measures them.
func (r recordCases) Run(c *console) error {
	cases, err := r.cases()
	if err != nil {
		return err
	}
	device, err := r.open("records are made on one")
	if err != nil {
		return err
	}
	if !r.All {
		if cases, err = r.lacking(r.Set, device.Name, cases); err != nil {
			return err
		}
	}
	others, err := records.ReadSuites(r.Suites)
	if err != nil {
		return err
	}
	if r.Set == records.Products {
		for i, one := range cases {
			if p, ok := one.(maintain.Product); ok {
				p.Peers = r.Peers
				cases[i] = p
			}
		}
	} else {
		peers, err := records.ReadPeers(r.Peers)
		if err != nil {
			return err
		}
		others = append(others, slices.DeleteFunc(peers, func(p records.Record) bool {
			return !slices.ContainsFunc(cases, func(c maintain.Case) bool { return c.Key() == p.Key })
		})...)
	}
	_, err = measure(c, r.Set, device, cases, r.timing, others, r.JSON)
	return err
}

// recordPassed records suites that passed.
type recordPassed struct {
	recorded
	Files  []string `arg:"" name:"file" type:"existingfile" help:"Files suites.tsv, which bench/gpu-run.sh wrote."`
	GPU    string   `name:"gpu" required:"" placeholder:"NAME" help:"Name of the GPU that the suites ran on."`
	Driver string   `required:"" placeholder:"VERSION" help:"Version of its driver."`
	CUDA   string   `name:"cuda" required:"" placeholder:"VERSION" help:"Version of CUDA."`
	Date   string   `required:"" placeholder:"DATE" help:"Day of the run, such as 2026-01-31."`
	Stale  bool     `name:"drop-stale" help:"Also remove the suites of all GPUs that ran with other kernels than those of this build."`
}

func (recordPassed) Help() string {
	return `A part of a suite is recorded if it passed with the kernels of this build: the parts that remain are what
stheno maintain suites lists. What did not pass is printed.`
}

// Run records them.
func (p recordPassed) Run(c *console) error {
	var ran []records.Record
	for _, path := range p.Files {
		suites, err := records.ReadSuites(path)
		if err != nil {
			return err
		}
		ran = append(ran, suites...)
	}
	passed, complaints, err := maintain.Outcomes(ran)
	if err != nil {
		return err
	}
	file, err := p.of(records.Ops, p.GPU)
	if err != nil {
		return err
	}
	later := *file
	later.Records, later.Runs = passed, []records.Run{{Driver: p.Driver, CUDA: p.CUDA, Date: p.Date}}
	if err := file.Merge(&later); err != nil {
		return err
	}
	if err := file.Write(records.Path(p.Recorded, records.Ops, p.GPU)); err != nil {
		return err
	}
	for _, line := range complaints {
		fmt.Fprintln(c.out, line)
	}
	fmt.Fprintf(c.out, "%d suites of %d are recorded\n", len(passed), len(ran))
	if !p.Stale {
		return nil
	}
	files, err := maintain.Read(p.Recorded, records.Ops)
	if err != nil {
		return err
	}
	for _, f := range files {
		names := maintain.DropStale(f, f.Tree)
		if len(names) == 0 {
			continue
		}
		fmt.Fprintf(c.out, "ran with other kernels on the %s, removed: %s\n", f.GPU, strings.Join(names, ", "))
		if err := f.Write(records.Path(p.Recorded, records.Ops, f.GPU)); err != nil {
			return err
		}
	}
	return nil
}

// merge adds files to the recorded results of their sets and GPUs.
type merge struct {
	Files []string `arg:"" name:"file" type:"existingfile" help:"Files of results, from bench/gpu-run.sh."`
	Into  string   `default:"bench/results" placeholder:"FOLDER" type:"existingdir" help:"Folder of the records (default: ${default})."`
}

// Run merges.
func (m merge) Run(c *console) error {
	for _, path := range m.Files {
		later, err := records.Read(path)
		if err != nil {
			return err
		}
		file, err := maintain.Recorded(m.Into, later.Set, later.GPU)
		if err != nil {
			return err
		}
		if err := file.Merge(later); err != nil {
			return err
		}
		to := records.Path(m.Into, later.Set, later.GPU)
		if err := file.Write(to); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(c.out, "%d records of %s on the %s are now in %s\n", len(later.Records), later.Set, later.GPU, to); err != nil {
			return err
		}
	}
	return nil
}

// tables rewrites the tables in README.md and docs, and the plot of drawn cases.
type tables struct{}

// Run rewrites them.
func (tables) Run() error {
	pages, err := maintain.Pages(".")
	if err != nil {
		return err
	}
	for page, text := range pages {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return maintain.PlotDrawn("docs", filepath.Join("bench", "results"))
}

// printTable prints rows of cells in columns.
func printTable(c *console, lines [][]string) error {
	t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
