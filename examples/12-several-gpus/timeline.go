package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
)

// event is what a trace has of a step: Chrome's format, times in microseconds.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Start float64        `json:"ts"`
	Took  float64        `json:"dur"`
	Row   int            `json:"tid"`
	Args  map[string]any `json:"args"`
}

// lane is a row of a trace: its name and its events.
type lane struct {
	name   string
	events []event
}

// lanes returns the rows of the last run of a trace that devices and collectives have, and the time at which the first event starts.
func lanes(trace []byte) (list []*lane, start float64) {
	var events []event
	notebook.Check(json.Unmarshal(trace, &events))
	byRow, start, run := map[int]*lane{}, math.Inf(1), 0.0
	for _, e := range events {
		name := fmt.Sprint(e.Args["name"])
		switch {
		case e.Phase == "M" && e.Name == "thread_name" && strings.HasPrefix(name, "rank ") && !strings.HasSuffix(name, "host"):
			if !strings.HasSuffix(name, "collectives") { // the rest is the name of the device
				name = name[:strings.Index(name, ",")] + ", kernels"
			}
			byRow[e.Row] = &lane{name: name}
			list = append(list, byRow[e.Row])
		case strings.HasPrefix(e.Name, "run "):
			run = e.Start
		}
	}
	for _, e := range events {
		if l := byRow[e.Row]; l != nil && e.Phase == "X" && e.Start >= run && !strings.HasPrefix(e.Name, "copy ") {
			l.events, start = append(l.events, e), min(start, e.Start)
		}
	}
	return list, start
}

// hidden returns the time of all events of a lane, and the part of it during which an event of another lane runs.
func hidden(of, beside *lane) (all, part float64) {
	for _, e := range of.events {
		all += e.Took
		for at, step := e.Start, e.Took/100; at < e.Start+e.Took-step/2; at += step {
			for _, o := range beside.events {
				if o.Start <= at && at < o.Start+o.Took {
					part += step
					break
				}
			}
		}
	}
	return all, part
}

// timelines shows a step on each rank.
func timelines(s *story) {
	s.Heading("A step, device by device")
	rows := s.Size(4096, 256, 8)
	net := newNetwork(rows, s.width)
	var text bytes.Buffer
	vm := net.train(s.all, cudaops.Trace(&text))
	r := rand.New(rand.NewPCG(5, 6))
	for range 3 {
		batch(vm, net, r)
		notebook.Check(vm.RunAll())
	}
	notebook.Check(vm.Close())
	list, start := lanes(text.Bytes())
	s.Text("The option `Trace` records when each step of a run begins and how long it takes, on every rank. Collectives have a row of their own: they are part of the same captured graph, and run beside whatever does not wait for them.")
	chart := figure.Chart{Title: "A training step", XLabel: "milliseconds", YLabel: "row"}
	table := figure.Table{Caption: "The rows", Header: []string{"row", "", "steps", "ms"}}
	colours := []uint32{0x1F77B4, 0xD62728}
	var collectives, kernels *lane
	for k, l := range list {
		series := figure.Series{Name: fmt.Sprintf("%d: %s", k+1, l.name), Colour: figure.RGB(colours[k%2])}
		if strings.HasSuffix(l.name, "collectives") {
			series.Colour = figure.RGB(colours[1])
			if collectives == nil {
				collectives = l
			}
		} else if series.Colour = figure.RGB(colours[0]); kernels == nil {
			kernels = l
		}
		total := 0.0
		for _, e := range l.events {
			series.X = append(series.X, (e.Start-start)/1000, (e.Start+e.Took-start)/1000, math.NaN())
			series.Y = append(series.Y, float64(k+1), float64(k+1), math.NaN())
			total += e.Took
		}
		chart.Series = append(chart.Series, series)
		table.Rows = append(table.Rows, []string{fmt.Sprint(k + 1), l.name, fmt.Sprint(len(l.events)), fmt.Sprintf("%.2f", total/1000)})
	}
	s.Figure("timeline", fmt.Sprintf("Kernels and collectives of one step, %d rows a rank and layers of %d: %s.", rows, s.width, s.where), chart)
	s.Table(table)
	if collectives == nil || kernels == nil || len(collectives.events) == 0 {
		notebook.Fail("the trace has no collectives")
	}
	all, part := hidden(collectives, kernels)
	if s.GPU() == nil || s.ranks == 1 {
		s.Text(`On the host a rank computes one step after the other, so %.0f %% of the time of its collectives is beside kernels; what a collective takes is mostly the wait for the other rank. On GPUs the graph of the step decides: a kernel that
			does not read a reduced gradient does not wait for it.`, 100*part/all)
		return
	}
	s.Text(`Of the %.0f us of the collectives of rank 0, %.0f %% are beside kernels. The last ones are not: nothing is left to compute when the gradients of the first layer are there.`, all, 100*part/all)
}
