package passes

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	G "gorgonia.org/gorgonia"
	"pgregory.net/rapid"
)

// frozenDevices are a device of each compute capability that policies tell apart, and the host.
func frozenDevices() []kernels.Device {
	devices := append(opspec.Devices(), frozenHost(), H200)
	for _, d := range []struct{ like, major, minor, sms int }{{0, 7, 5, 68}, {1, 8, 6, 84}, {1, 8, 9, 142}, {3, 12, 0, 170}} {
		dev := devices[d.like]
		dev.Name, dev.Major, dev.Minor, dev.SMs, dev.SharedOptin = fmt.Sprintf("%d.%d", d.major, d.minor), d.major, d.minor, d.sms, 99<<10
		devices = append(devices, dev)
	}
	return devices
}

// frozen hashes what is made for devices.
type frozen struct {
	hash.Hash
	*testing.T
	codes map[string]string // of PTX, by image
}

// plan takes in launches, and the PTX of generated kernels.
func (f *frozen) plan(p *kernels.Plan, dev kernels.Device) {
	fmt.Fprintln(f, p, p.Flops, p.Precision, p.Graph)
	for _, l := range p.Launches {
		name := l.Kernel.Image.Name()
		fmt.Fprintln(f, name, l.CoResident, l.Cooperative)
		if dev.Kind == kernels.CPU || !strings.Contains(name, "(") {
			continue
		}
		key := fmt.Sprintf("%#v", l.Kernel.Image)
		if f.codes[key] == "" {
			code := testutil.Get[kernels.Code](f.T)(l.Kernel.Image.Code(0, 0))
			f.codes[key] = fmt.Sprintf("%x", sha256.Sum256(code.Text))
		}
		fmt.Fprintln(f, f.codes[key])
	}
}

// program takes in a program after each pass, with its launches in the end.
func (f *frozen) program(p *program.Program, target Target) {
	testutil.Do(f.T, Run(p, target, func(pass string, p *program.Program) error {
		_, err := fmt.Fprintf(f, "%s\n%v\n", pass, p)
		return err
	}))
	for _, plan := range p.Plans() {
		f.plan(plan, target.Device)
	}
}

// values takes in bits.
func (f *frozen) values(list []G.Value) {
	for _, v := range list {
		f.Write(testutil.Get[[]byte](f.T)(values.Bytes(v)))
	}
}

// inputs returns values of a graph's inputs: some of those that the nodes have are others in each process.
func (f *frozen) inputs(g *lower.Graph, seed uint64) []G.Value {
	r, list := rand.New(rand.NewPCG(seed, 2)), inputsOf(g)
	for i, x := range g.Inputs {
		dt, _ := values.Dtype(list[i].Dtype())
		if x.State != nil || !dt.IsFloat() {
			continue
		}
		v, m := values.New(dt, list[i].Shape())
		for k := range kernels.Count(list[i].Shape()) {
			copy(m[k*dt.Size():], opspec.Encode(dt, []float64{r.NormFloat64()}))
		}
		list[i] = v
	}
	return list
}

// op takes in the plans of a case.
func (f *frozen) op(c opspec.Case) {
	for _, dev := range frozenDevices() {
		for _, dt := range c.Types {
			p, _, err := c.Plan(dt, dev)
			testutil.Do(f.T, err)
			f.plan(p, dev)
		}
	}
}

// function takes in the plans of a drawn function, and what it computes on the host.
func (f *frozen) function(m *exprtest.Map, plan func(dev kernels.Device, views []codegen.View) (*kernels.Plan, error)) {
	var views []codegen.View
	for _, v := range m.Views {
		views = append(views, codegen.View(v))
	}
	for _, dev := range frozenDevices() {
		f.plan(testutil.Get[*kernels.Plan](f.T)(plan(dev, views)), dev)
	}
	p := testutil.Get[*kernels.Plan](f.T)(plan(frozenHost(), views))
	out := exprtest.Memory(p.Out)
	testutil.Do(f.T, p.Run(m.Inputs(), out, exprtest.Memory(p.Scratch)))
	f.Write(out)
}

// lowered returns the program of a graph.
func (f *frozen) lowered(g *G.ExprGraph, w *lower.Wanted) *lower.Graph {
	return testutil.Get[*lower.Graph](f.T)(lower.New(g, w))
}

// drawn returns case i of what a function draws.
func drawn[T any](i int, draw func(t *rapid.T) T) T { return rapid.Custom(draw).Example(i) }

// frozenGroups are the groups of frozen results, by name. Each group of random cases covers one block of them.
func frozenGroups() map[string]func(f *frozen) {
	groups := map[string]func(f *frozen){}
	specs := slices.DeleteFunc(opspec.All(), func(s opspec.Spec) bool { return s.Wide == nil })
	for _, s := range specs {
		groups["op "+s.Name] = func(f *frozen) {
			for _, c := range s.Cases {
				if !c.Composed {
					f.op(c)
				}
			}
		}
	}
	for _, c := range graphspec.All() {
		groups["graph "+c.Name+" "+c.Size] = func(f *frozen) {
			for _, dev := range frozenDevices() {
				in := make([]G.Value, len(c.Inputs))
				for i, x := range c.Inputs {
					in[i], _ = values.New(kernels.Float32, x.Shape)
				}
				g, _ := c.Graph(in)
				f.program(f.lowered(g, nil).Program, Target{Device: dev})
			}
		}
	}
	for _, s := range graphspec.Steps() {
		groups["step "+s.Case.Name+" "+s.Name+" "+s.Size] = func(f *frozen) {
			for _, dev := range frozenDevices() {
				in := make([]G.Value, len(s.Inputs))
				for i, x := range s.Inputs {
					in[i], _ = values.New(kernels.Float32, x.Shape)
				}
				p := s.Program(in)
				solver, _, err := internal.ReadSolver(s.Solver())
				testutil.Do(f.T, err)
				w := &lower.Wanted{Train: &lower.Training{Solvers: lower.Gorgonia, Sets: []lower.Set{{Solver: solver, Learnables: p.Learnables}}}, Precision: s.Precision}
				f.program(f.lowered(p.Graph, w).Program, Target{Device: dev, DoubleBufferMin: 1 << 20})
			}
		}
	}
	// Attention came after the list was made, and would change what is drawn of all others.
	drawnSpecs := slices.DeleteFunc(slices.Clone(specs), func(s opspec.Spec) bool { return s.Name == "Attention" })
	ops := slices.Concat(exprtest.Exact, exprtest.Inexact)
	for block := range frozenBlocks {
		each := func(what string, one func(f *frozen, i int)) {
			groups[fmt.Sprintf("drawn %s %02d", what, block)] = func(f *frozen) {
				for i := range frozenBlock {
					one(f, block*frozenBlock+i)
				}
			}
		}
		each("ops", func(f *frozen, i int) {
			f.op(drawnSpecs[i%len(drawnSpecs)].Random(rand.New(rand.NewPCG(uint64(i), 1))))
		})
		each("maps", func(f *frozen, i int) {
			m := drawn(i, func(t *rapid.T) *exprtest.Map { return exprtest.DrawMap(t, ops, 8) })
			f.function(m, func(dev kernels.Device, views []codegen.View) (*kernels.Plan, error) {
				return codegen.Map(dev, m.Func, m.Shape, views...)
			})
		})
		each("rows", func(f *frozen, i int) {
			m := drawn(i, func(t *rapid.T) *exprtest.Map { return exprtest.DrawRows(t, ops, 8) })
			f.function(m, func(dev kernels.Device, views []codegen.View) (*kernels.Plan, error) {
				return codegen.Rows(dev, m.Func, m.Shape, m.Axes, m.PerRow, views...)
			})
		})
		each("graphs", func(f *frozen, i int) {
			b := drawn(i, drawGraph)
			w := &lower.Wanted{Keep: b.keep, Precision: []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16}[i%3]}
			f.program(f.lowered(b.g, w).Program, Target{Device: frozenDevices()[i/3%4]})
			host := f.lowered(b.g, w)
			f.program(host.Program, Target{Device: frozenHost()})
			f.values(testutil.Get[[]G.Value](f.T)(host.Program.Eval(f.inputs(host, uint64(i)))))
		})
	}
	return groups
}

const (
	frozenBlock  = 250 // cases of a block
	frozenBlocks = 20  // of each kind: 20 000 cases
)

// The launches, the PTX, the programs after each pass and the bits of their values are those of testdata/frozen.txt: a change of
// structure alone changes none. STHENO_FROZEN=1 takes in all that is drawn, and the large graphs; -update accepts what it finds.
func TestFrozen(t *testing.T) {
	const file = "testdata/frozen.txt"
	all := os.Getenv("STHENO_FROZEN") == "1" || *update
	want := map[string]string{}
	for line := range strings.Lines(string(testutil.Get[[]byte](t)(os.ReadFile(file)))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = sum
	}
	groups, got := frozenGroups(), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if kind, _, _ := strings.Cut(name, " "); !all && (kind == "drawn" && !strings.HasSuffix(name, " 00") || kind == "step" || kind == "graph") {
			continue
		}
		f := &frozen{sha256.New(), t, map[string]string{}}
		groups[name](f)
		got[name] = fmt.Sprintf("%.16x", f.Sum(nil))
		if got[name] != want[name] && !*update {
			t.Errorf("%s: got %s, want %s", name, got[name], want[name])
		}
	}
	if *update {
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(got)) {
			fmt.Fprintln(&text, got[name], name)
		}
		testutil.Do(t, os.WriteFile(file, []byte(text.String()), 0o644))
	}
}

// frozenHost is a host of two cores, whatever this machine has.
func frozenHost() kernels.Device {
	host := kernels.HostDevice()
	host.SMs = 2
	return host
}
