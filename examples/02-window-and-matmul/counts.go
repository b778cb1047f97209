package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/kernels"
)

// The loads are counted by NVIDIA's profiler, in a run of its own that launches
// each version once:
//
//	go build ./examples/02-window-and-matmul
//	ncu --csv -k regex:^matmul_ --metrics METRICS ./02-window-and-matmul -profile > counts.csv
//	./02-window-and-matmul -counts counts.csv -record recorded.json
//
// with the names of metrics, below, separated by commas, in the place of METRICS.

// profiled is N of the products whose loads are counted.
const profiled = 1024

// launchAll launches every version of MatMul once on float32, in order.
func launchAll(p *notebook.Page) error {
	if p.GPU() == nil {
		return errors.New("-profile launches kernels on a GPU, and there is none")
	}
	x, out := fill[float32](profiled*profiled, 1), make([]float32, profiled*profiled)
	for v := 1; v <= last; v++ {
		plan, err := square{version: v, n: profiled}.plan(p.Target(), kernels.Float32)
		if err != nil {
			return err
		}
		if err := cudaops.RunPlan(p.GPU().Ordinal, plan, [][]byte{kernels.Bytes(x), kernels.Bytes(x)}, kernels.Bytes(out)); err != nil {
			return err
		}
	}
	return nil
}

// metrics are what is counted, and what a count is divided by to give elements of
// float32 for each multiplication.
var metrics = struct{ global, async, shared, wavefronts, conflicts, sectors string }{}

// counts are ncu's counts by kernel and metric.
type counts map[string]map[string]float64

// readCounts reads ncu's CSV, among whatever else was printed.
func readCounts(path string) (counts, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, table, ok := strings.Cut(string(text), "\"ID\",")
	if !ok {
		return nil, fmt.Errorf("-counts %s: no line that starts with \"ID\", want what ncu --csv prints", path)
	}
	rows, err := csv.NewReader(strings.NewReader("\"ID\"," + table)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("-counts %s: %w", path, err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	c := counts{}
	for _, row := range rows[1:] {
		kernel, metric := row[column["Kernel Name"]], row[column["Metric Name"]]
		value, err := strconv.ParseFloat(strings.ReplaceAll(row[column["Metric Value"]], ",", ""), 64)
		if err != nil {
			return nil, fmt.Errorf("-counts %s: %s of %s: %w", path, metric, kernel, err)
		}
		if c[kernel] == nil {
			c[kernel] = map[string]float64{}
		}
		c[kernel][metric] = value
	}
	return c, nil
}

var _ = math.Pi

func loads(p *notebook.Page, counted string) error { return nil }
