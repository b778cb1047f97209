package main

import (
	"slices"

	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/results"
)

// recorded are the flags of commands that look at the record of a GPU.
type recorded struct {
	Run pattern `placeholder:"REGEXP" help:"Only the cases whose name has a match of this regular expression."`
}

// opRecords are the cases of ops and their record.
type opRecords struct {
	recorded
	Recorded string `default:"bench/results" placeholder:"FOLDER" type:"path" help:"Folder of the records (default: ${default})."`
	Text     string `placeholder:"FILE" type:"existingfile" help:"Also the histogram of this text, repeated to 5.8 MB."`
	Versions bool   `help:"Also the numbered versions of the ops."`
}

// cases returns those that the flags choose.
func (o opRecords) cases() ([]benchCase, error) {
	all := timedCases(o.Versions)
	if o.Text != "" {
		text, err := textCase(o.Text)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return choose(o.recorded.Run, all, caseName)
}

// graphRecords are the graphs and their record.
type graphRecords struct {
	recorded
	Recorded string    `default:"bench/results/graphs" placeholder:"FOLDER" type:"path" help:"Folder of the records (default: ${default})."`
	Most     megabytes `placeholder:"MB" help:"Leave out graphs that move more than so many megabytes."`
}

func (g graphRecords) cases() ([]benchCase, error) {
	return choose(g.recorded.Run, timedGraphs(g.Most), caseName)
}

// stepRecords are the training steps and their record.
type stepRecords struct {
	recorded
	Recorded string `default:"bench/results/steps" placeholder:"FOLDER" type:"path" help:"Folder of the records (default: ${default})."`
}

func (s stepRecords) cases() ([]benchCase, error) {
	return choose(s.recorded.Run, timedSteps(), caseName)
}

// lacking returns those of the cases that a file has no row of, or one of other kernels.
func lacking(file *results.File, cases []benchCase) ([]benchCase, error) {
	tree, err := evidence.Tree()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(cases, func(c benchCase) bool { return evidence.RowState(file, c.Key(), tree) == evidence.Current }), nil
}

// lister are the flags of commands that list cases.
type lister struct {
	Missing bool   `help:"Only the names of the cases that have no record for a GPU, or one of other kernels."`
	GPU     string `name:"gpu" placeholder:"NAME" help:"Name of the GPU for --missing (default: that of this machine's first)."`
}

type listOps struct {
	opRecords
	lister
}

// Run prints the cases.
func (l listOps) Run(c *console) error {
	cases, err := l.cases()
	if err != nil {
		return err
	}
	return l.list(c, l.Recorded, cases)
}

type listGraphs struct {
	graphRecords
	lister
}

// Run prints the graphs.
func (l listGraphs) Run(c *console) error {
	cases, err := l.cases()
	if err != nil {
		return err
	}
	return l.list(c, l.Recorded, cases)
}

type listSteps struct {
	stepRecords
	lister
}

// Run prints the training steps.
func (l listSteps) Run(c *console) error {
	cases, err := l.cases()
	if err != nil {
		return err
	}
	return l.list(c, l.Recorded, cases)
}

// list prints cases with the times that are recorded for each GPU.
func (l lister) list(c *console, folder string, cases []benchCase) error {
	if l.GPU != "" && !l.Missing {
		return usageErrorf("got --gpu without --missing, want both or neither: without, all GPUs are listed")
	}
	if l.Missing {
		file, err := recordOf(folder, l.GPU)
		if err != nil {
			return err
		}
		if cases, err = lacking(file, cases); err != nil {
			return err
		}
		return printNames(c.out, cases, caseName)
	}
	files, err := readRecords(folder)
	if err != nil {
		return err
	}
	tree, err := evidence.Tree()
	if err != nil {
		return err
	}
	titles := []string{"case"}
	for _, f := range files {
		titles = append(titles, f.GPU)
	}
	lines := [][]string{titles}
	for _, bc := range cases {
		cells := []string{caseName(bc)}
		for _, f := range files {
			cells = append(cells, recordedTime(f, bc.Key(), tree))
		}
		lines = append(lines, cells)
	}
	return printTable(c, lines)
}

// recordedTime prints the time of a case.
func recordedTime(f *results.File, key results.Key, tree results.Digests) string {
	row, _ := f.Row(key)
	switch evidence.RowState(f, key, tree) {
	case evidence.Unmeasured:
		return "not measured"
	case evidence.Stale:
		return results.Micros(row.Micros) + ", with other kernels"
	}
	return results.Micros(row.Micros)
}

// recorder are the flags of commands that time cases for the record.
type recorder struct {
	timing
	onDevice
	All   bool   `help:"Also the cases that have a record with the kernels of this build."`
	Peers string `placeholder:"FILE" type:"existingfile" help:"Add the times of other libraries, which bench/peers.py wrote."`
	JSON  string `name:"json" required:"" placeholder:"FILE" type:"path" help:"File to write the results to; in a folder, one named after the GPU."`
}

// record times cases, which a pattern has chosen.
func (r recorder) record(c *console, folder string, chosen pattern, cases []benchCase, suites []results.Suite) error {
	device, err := deviceOf(r.device(), "records are made on one")
	if err != nil {
		return err
	}
	if !r.All {
		file, err := evidence.Recorded(folder, device.Name)
		if err != nil {
			return err
		}
		if cases, err = lacking(file, cases); err != nil {
			return err
		}
	}
	var peers []results.Peer
	if r.Peers != "" {
		if peers, err = results.ReadPeers(r.Peers); err != nil {
			return err
		}
	}
	m, err := onGPU(c, device, cases, r.runs(), r.seed())
	if err != nil {
		return err
	}
	m.path = r.JSON
	m.file.Suites = append(m.file.Suites, suites...)
	m.file.Peers = append(m.file.Peers, slices.DeleteFunc(peers, func(p results.Peer) bool {
		if r.All {
			return !chosen.Matches(p.Key.String())
		}
		return !slices.ContainsFunc(cases, func(c benchCase) bool { return c.Key() == p.Key })
	})...)
	return m.run(c)
}

type recordOps struct {
	opRecords
	recorder
	Suites string `placeholder:"FILE" type:"existingfile" help:"Add the outcomes of test suites, which bench/gpu-run.sh wrote."`
}

// Run times the cases.
func (r recordOps) Run(c *console) error {
	cases, err := r.cases()
	if err != nil {
		return err
	}
	var suites []results.Suite
	if r.Suites != "" {
		if suites, err = results.ReadSuites(r.Suites); err != nil {
			return err
		}
	}
	return r.record(c, r.Recorded, r.recorded.Run, cases, suites)
}

type recordGraphs struct {
	graphRecords
	recorder
}

// Run times the graphs.
func (r recordGraphs) Run(c *console) error {
	cases, err := r.cases()
	if err != nil {
		return err
	}
	return r.record(c, r.Recorded, r.recorded.Run, cases, nil)
}

type recordSteps struct {
	stepRecords
	recorder
}

// Run times the training steps.
func (r recordSteps) Run(c *console) error {
	cases, err := r.cases()
	if err != nil {
		return err
	}
	return r.record(c, r.Recorded, r.recorded.Run, cases, nil)
}
