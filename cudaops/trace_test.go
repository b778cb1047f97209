package cudaops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// readTrace returns the events of a trace, ended or not, and the names of its rows.
func readTrace(t *testing.T, text string) (events []traceEvent, rows map[int]string) {
	t.Helper()
	if !strings.HasSuffix(text, "]\n") {
		text += "]"
	}
	testutil.Do(t, json.Unmarshal([]byte(text), &events))
	rows = map[int]string{}
	for _, e := range events {
		if e.Phase == "M" && e.Name == "thread_name" {
			rows[e.Row] = fmt.Sprint(e.Args["name"])
		}
	}
	return slices.DeleteFunc(events, func(e traceEvent) bool { return e.Phase == "M" }), rows
}

// near reports whether times in us are the same to a nanosecond.
func near(us float64, d time.Duration) bool {
	return us >= float64(d-1)/1e3 && us <= float64(d+1)/1e3
}

// A trace contains every step and copy of every run, with the times of the report. Steps do not overlap.
func TestTrace(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, _, second, _ := applied(t, doing(func(in ...G.Value) (G.Value, error) { time.Sleep(time.Millisecond); return in[0], nil }))
		testutil.Get[*G.Node](t)(G.Square(second))
		var text bytes.Buffer
		vm := testutil.Get[*VM](t)(NewVM(g, on, Trace(&text)))
		before := 0.0
		for run := 1; run <= 3; run++ {
			testutil.Do(t, vm.RunAll())
			r := vm.Report()
			events, rows := readTrace(t, text.String())
			if rows[runRow] != "runs" || rows[hostRow] != "host" || rows[deviceRow] != r.Device {
				t.Fatalf("the rows are %v", rows)
			}
			at := slices.IndexFunc(events, func(e traceEvent) bool { return e.Name == fmt.Sprint("run ", run) && e.Row == runRow })
			if at < 0 {
				t.Fatalf("no run %d among %v", run, events)
			}
			whole, steps := events[at], events[at+1:]
			if !near(whole.Took, r.Time) || whole.Start < before {
				t.Errorf("run %d from %v for %v us, want %v after %v", run, whole.Start, whole.Took, r.Time, before)
			}
			before = whole.Start + whole.Took
			copies, k := map[string]float64{}, 0
			ends := map[int]float64{}
			for _, e := range steps {
				if e.Phase != "X" || e.Group != 1 || e.Took < 0 || e.Start < max(whole.Start, ends[e.Row]) || e.Start+e.Took > before+0.001 {
					t.Errorf("%+v is not within run %d, after what was before on its row, until %v", e, run, ends[e.Row])
				}
				ends[e.Row] = e.Start + e.Took
				if way, _, copied := strings.Cut(e.Name, ":"); copied && strings.HasPrefix(way, "copy ") {
					copies[way] += e.Args["bytes"].(float64)
					continue
				}
				s := r.Steps[k]
				k++
				if e.Name != covered(s.Nodes) || !near(e.Took, s.Time) || (e.Row == hostRow) != (s.Where == "host") || e.Args["op"] != s.Op ||
					s.Where == "host" && (e.Took < 1000 || e.Args["reason"] != s.Reason) || s.Where != "host" && fmt.Sprint(e.Args["kernels"]) != fmt.Sprint(s.Kernels) {
					t.Errorf("step %d is %+v, want %+v", k, e, s)
				}
			}
			if k != len(r.Steps) || copies["copy in"] != float64(r.In()) || copies["copy out"] != float64(r.Out()) {
				t.Errorf("%d steps, copies %v, want %d, %d bytes in and %d out", k, copies, len(r.Steps), r.In(), r.Out())
			}
		}
		testutil.Do(t, vm.Close())
		testutil.Do(t, vm.Close())
		if !json.Valid(text.Bytes()) {
			t.Errorf("a trace that was ended is no JSON: %s", &text)
		}
	})
}

// The trace contains runs without results, without their steps.
func TestTraceReadEvery(t *testing.T) {
	p := newPerceptron(t, tensor.Float64, 3)
	p.feed(t)
	var text bytes.Buffer
	vm := machine(t, p.g, OnHost(), Trace(&text), ReadEvery(2), Train(G.NewVanillaSolver(), p.learnables...))
	for range 4 {
		testutil.Do(t, vm.RunAll())
	}
	var runs []string
	steps := map[string]int{}
	events, _ := readTrace(t, text.String())
	for _, e := range events {
		if e.Row == runRow {
			runs = append(runs, e.Name)
		} else {
			steps[runs[len(runs)-1]]++
		}
	}
	if fmt.Sprint(runs) != "[run 1 run 2 run 3 run 4]" || steps["run 1"] != 0 || steps["run 3"] != 0 || steps["run 2"] == 0 || steps["run 4"] != steps["run 2"] {
		t.Errorf("runs %v, events %v", runs, steps)
	}
}

// The trace of several ranks has the steps of each on rows of its own, and collectives on another; steps that depend on each other do not overlap.
func TestTraceRanks(t *testing.T) {
	onRanks(t, func(t *testing.T, on func(n int) (Option, int), _ Option) {
		ranks, n := on(3)
		net := newShare(t, tensor.Float32, 4, []int{9, 8, 7}, 3)
		var text bytes.Buffer
		vm := machine(t, net.g, ranks, Split(net.x, net.y), Trace(&text), Train(G.NewVanillaSolver(), net.learnables...))
		r := rand.New(rand.NewPCG(1, 1))
		for range 3 {
			net.feed(t, vm, draw(r, tensor.Float32, 4*n, 9), draw(r, tensor.Float32, 4*n, 7))
			testutil.Do(t, vm.RunAll())
		}
		events, rows := readTrace(t, text.String())
		steps := map[int][]traceEvent{}
		for _, e := range events {
			steps[e.Row] = append(steps[e.Row], e)
		}
		for rank := range n {
			device, between := deviceRow+rank*rankRows, collectiveRow+rank*rankRows
			if !strings.HasPrefix(rows[device], fmt.Sprintf("rank %d, ", rank)) || rows[between] != fmt.Sprintf("rank %d, collectives", rank) {
				t.Errorf("rank %d: the rows are %v", rank, rows)
			}
			if len(steps[device]) == 0 || len(steps[device]) != len(steps[deviceRow]) || len(steps[between]) != 2*3 { // of gradients and of the cost
				t.Errorf("rank %d: got %d steps and %d collectives, want those of rank 0, %d and 6", rank, len(steps[device]), len(steps[between]), len(steps[deviceRow]))
			}
			for i, e := range steps[between] {
				run, end := len(steps[device])/3, 0.0 // the solver's step or a copy of the cost is last
				for _, s := range steps[device][i/2*run : (i/2+1)*run] {
					end = max(end, s.Start+s.Took)
				}
				if e.Took <= 0 || e.Args["bytes"].(float64) <= 0 || e.Start+e.Took > end {
					t.Errorf("rank %d: got %+v, want it before the end of the run's steps, %v", rank, e, end)
				}
			}
		}
	})
}

func TestTraceErrors(t *testing.T) {
	g, first, _, _ := applied(t, userOp{})
	for want, opts := range map[string][]Option{
		"Trace got no writer":             {Trace(nil)},
		"the option Trace 2 times":        {Trace(new(bytes.Buffer)), Trace(new(bytes.Buffer))},
		"Precompiled got a <nil>, want t": {Precompiled(nil, nil)},
	} {
		if _, err := NewVM(g, append(opts, OnHost())...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
	vm := testutil.Get[*VM](t)(NewVM(g, OnHost(), Trace(panicWriter{})))
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "cudaops: Trace: its writer panicked: boom") || first.Value() == nil {
		t.Errorf("a writer that panics gives %v and the value %v", err, first.Value())
	}
	if err := vm.Close(); err == nil || !strings.Contains(err.Error(), "Trace") {
		t.Errorf("Close gives %v", err)
	}
}
