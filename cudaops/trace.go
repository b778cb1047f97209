package cudaops

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/guard"
)

// Trace writes the start and duration of each step of each run in Chrome's trace format, for chrome://tracing and
// ui.perfetto.dev. It has a row for runs, one for the host, and one for the device, which includes copies. With several ranks each rank of
// the process has a row for the host, one for the device, and one for the collectives, which overlap the device's other steps.
// [VM.Close] writes the end of the trace, which both viewers can do without.
//
// Trace measures steps as [Timed] does. Since the device has its own clock, its first step of a run is taken to start when
// the host queued it. Runs without results, under [ReadEvery], are recorded without steps.
func Trace(w io.Writer) Option { return func(c *config) { c.trace = append(c.trace, w) } }

// tracer writes a trace.
type tracer struct {
	mu    sync.Mutex
	to    io.Writer
	made  time.Time // times are relative to it
	begun bool
	ended bool
	first int // number of the process's first rank, of several ranks
	ranks int // of the process
	total int // of all processes
}

// newTracer returns the tracer of the option Trace, or nil.
func newTracer(c *config) (*tracer, error) {
	switch {
	case len(c.trace) == 0:
		return nil, nil
	case len(c.trace) > 1:
		return nil, fmt.Errorf("got the option Trace %d times, want it once", len(c.trace))
	case guard.IsNil(c.trace[0]):
		return nil, errors.New("Trace got no writer")
	}
	t := &tracer{to: c.trace[0], made: time.Now(), ranks: c.ranksOrOne(), total: c.total()}
	if c.world != nil {
		t.first = c.world.Rank
	}
	return t, nil
}

// traceEvent is an event in Chrome's format: times are in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"` // X is a span, M the name of a row
	Start float64        `json:"ts"`
	Took  float64        `json:"dur"`
	Group int            `json:"pid"`
	Row   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// Rows of a trace. Those of rank r of the process have numbers that are higher by r*rankRows.
const (
	runRow = iota + 1
	hostRow
	deviceRow
	collectiveRow
	rankRows = iota - 1
)

// run writes a run.
func (t *tracer) run(s *shown) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	events := []traceEvent{{Name: fmt.Sprint("run ", s.runs), Start: micros(s.began.Sub(t.made)), Took: micros(s.took), Row: runRow}}
	if s.finished {
		for r, of := range s.ranks {
			for i, in := range s.graph.Program.Instrs {
				if e, ok := instrEvent(in); ok {
					e.Start, e.Took = micros(s.began.Sub(t.made)+of.starts[i]), micros(of.times[i])
					e.Row += r * rankRows
					events = append(events, e)
				}
			}
		}
	}
	return t.write(s.device, events)
}

// instrEvent returns the event of an instruction; ok is false for instructions without a time.
func instrEvent(in *program.Instr) (e traceEvent, ok bool) {
	nodes := nodeNames(in)
	e = traceEvent{Name: shorten(covered(nodes), 60), Row: deviceRow, Args: map[string]any{"nodes": nodes, "op": in.Op.String()}}
	switch op := in.Op.(type) {
	case program.Copy:
		v, to := in.Out[0], "in"
		if v.Space == program.OnHost {
			to = "out"
		}
		e.Name, e.Args["bytes"] = fmt.Sprintf("copy %s: %s", to, v.Name), v.Bytes()
		delete(e.Args, "op")
	case program.Host:
		e.Row = hostRow
		if op.Reason != "" {
			e.Args["reason"] = op.Reason
		}
	default:
		if !program.Computes(in.Op) {
			return e, false
		}
		if in.Plan == nil {
			e.Row, e.Args["bytes"] = collectiveRow, bytesOf(in.In)
			break
		}
		e.Args["bytes"], e.Args["operations"], e.Args["kernels"] = in.Traffic(in.Plan), in.Plan.Flops, in.Kernels()
	}
	return e, true
}

func bytesOf(values []*program.Value) (n int64) {
	for _, v := range values {
		n += v.Bytes()
	}
	return n
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// write writes events, and the beginning of the file before the first one.
func (t *tracer) write(device string, events []traceEvent) error {
	if !t.begun {
		called := func(what string, row int, name string) traceEvent {
			return traceEvent{Name: what, Phase: "M", Row: row, Args: map[string]any{"name": name}}
		}
		names := []traceEvent{called("process_name", 0, "Stheno"), called("thread_name", runRow, "runs")}
		for r := range t.ranks {
			of := ""
			if t.total > 1 {
				of = fmt.Sprintf("rank %d, ", t.first+r)
				names = append(names, called("thread_name", collectiveRow+r*rankRows, of+"collectives"))
			}
			names = append(names, called("thread_name", hostRow+r*rankRows, of+"host"), called("thread_name", deviceRow+r*rankRows, of+device))
		}
		events = append(names, events...)
	}
	var text []byte
	for _, e := range events {
		e.Group = 1
		if e.Phase == "" {
			e.Phase = "X"
		}
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("Trace: %w", err)
		}
		before := ",\n"
		if !t.begun {
			before, t.begun = "[\n", true
		}
		text = append(append(text, before...), line...)
	}
	return t.put(text)
}

// end writes the end of the trace.
func (t *tracer) end() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun || t.ended {
		return nil
	}
	t.ended = true
	return t.put([]byte("\n]\n"))
}

func (t *tracer) put(text []byte) error {
	err := guard.Recover("its writer", func() error { _, err := t.to.Write(text); return err })
	if err != nil {
		return fmt.Errorf("Trace: %w", err)
	}
	return nil
}
