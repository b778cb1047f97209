package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
)

// The loads are counted by NVIDIA's profiler, in a run of its own that launches
// each version once:
//
//	go build ./examples/02-window-and-matmul
//	ncu --csv -k regex:^matmul_ --metrics METRICS ./02-window-and-matmul -profile > counts.csv
//	./02-window-and-matmul -counts counts.csv -record recorded.json
//
// with the names in metrics, below, separated by commas, in place of METRICS.

// profiled is N of the products whose loads are counted.
const profiled = 1024

// launchAll launches every version of MatMul once on float32, in order.
func launchAll(p *notebook.Page) {
	if p.GPU() == nil {
		notebook.Fail("-profile launches kernels on a GPU, and there is none")
	}
	x, out := fill[float32](profiled*profiled, 1), make([]float32, profiled*profiled)
	for v := 1; v <= last; v++ {
		plan := notebook.Must(square{version: v, n: profiled}.plan(p.Target(), kernels.Float32))
		notebook.Check(bench.Run(p.GPU().Ordinal, plan, [][]byte{kernels.Bytes(x), kernels.Bytes(x)}, kernels.Bytes(out)))
	}
}

// metrics are the counters for the table below.
var metrics = [...]string{
	"smsp__inst_executed_op_global_ld.sum",                     // 0: loads by a warp into registers
	"smsp__sass_data_bytes_mem_global_op_ld.sum",               // 1: bytes of loads 0, once for lanes of one address
	"smsp__sass_data_bytes_mem_global_op_ldgsts.sum",           // 2: bytes by cp.async
	"smsp__inst_executed_op_shared_ld_pred_on_any.sum",         // 3: loads by a warp
	"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",     // 4: wavefronts of loads 3
	"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", // 5: wavefronts 4 that bank conflicts add
	"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",           // 6: sectors of 32 bytes
}

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
		return nil, fmt.Errorf("-counts %s: no line that starts with \"ID\", want the output of ncu --csv", path)
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

// formulas are the loads of a version for each multiplication: of a tile of C of a
// block from global memory and of a thread (7: a warp) from shared memory, a row
// and a column for each.
var formulas = [last]struct {
	global, shared string
	loads, reads   float64
	wide           float64 // elements that a lane takes from shared memory at once
}{
	{"2", "", 2, 0, 0},
	{"2 / 8", "", 2. / 8, 0, 0},
	{"2 / 128", "2 / 8", 2. / 128, 2. / 8, 4},
	{"2 / 128", "2 / 8", 2. / 128, 2. / 8, 4},
	{"2 / 128", "2 / 8", 2. / 128, 2. / 8, 4},
	{"2 / 128", "2 / 8", 2. / 128, 2. / 8, 4},
	{"1 / 128 + 1 / 64", "1 / 64 + 1 / 32", 1./128 + 1./64, 1./64 + 1./32, 1},
}

// loads compares the loads that were counted with the formulas.
func loads(p *notebook.Page, counted string) {
	p.Heading("The loads, counted")
	p.Text(`The formulas say how many elements a version loads for each of the N^3 multiplications: 2 / L from global memory and 2 / V from shared
		memory, where L is the side of a block's tile and V that of a thread's. NVIDIA's profiler counted them for N = %d and float32. It counts instructions of
		warps, and bytes.`, profiled)
	var c counts
	if counted != "" {
		c = notebook.Must(readCounts(counted))
	}
	names := versionsOf("MatMul")[:last]
	multiplications := math.Pow(profiled, 3)
	t := figure.Table{Caption: fmt.Sprintf("Loads for each multiplication of a %d x %d x %d product", profiled, profiled, profiled),
		Header: []string{"version", "global", "counted", "shared", "counted", "bytes fetched, to needed", "turns of the banks, in 1000", "by conflicts"}}
	for i, f := range formulas {
		kernel := notebook.Must(square{version: i + 1, n: 16}.plan(kernels.HostDevice(), kernels.Float32)).Launches[0].Kernel.Entry
		var v [len(metrics)]float64
		for k, metric := range metrics {
			if v[k] = math.NaN(); p.GPU() != nil && c == nil {
				continue // not counted
			}
			v[k] = p.Measure(fmt.Sprintf("count, %s, %s", kernel, metric), "", func() float64 {
				count, ok := c[kernel][metric]
				if !ok {
					notebook.Fail("-counts %s: no %s of %s", counted, metric, kernel)
				}
				return count
			}).Value
		}
		// One element a lane, of which several may be the same; or 16 bytes of which none is.
		global := max(32*v[0], (v[1]+v[2])/4) / multiplications
		shared := v[3] * 32 * f.wide / multiplications
		row := []string{fmt.Sprintf("%d: %s", i+1, names[i]), f.global + " = " + figure.Number(f.loads), figure.Number(global), "", "", "", "", ""}
		if f.wide > 0 {
			row[3], row[4] = f.shared+" = "+figure.Number(f.reads), figure.Number(shared)
			row[5] = figure.Number(32 * v[6] / (v[1] + v[2]))
			row[6] = figure.Number(1000 * v[4] / multiplications)
			row[7] = notebook.In(100*v[5]/v[4], "%").String()
		}
		t.Rows = append(t.Rows, row)
		for _, w := range [][2]float64{{global, f.loads}, {shared, f.reads}} {
			if !math.IsNaN(w[0]) && math.Abs(w[0]-w[1]) > 0.02*w[1] {
				notebook.Fail("%s loads %v elements for each multiplication, the formula says %v", kernel, w[0], w[1])
			}
		}
	}
	p.Table(t)
	p.Text(`Step 3 fetches rows of A with a stride, so that 32 bytes come for 4 that are wanted; its reads from shared memory ask some banks twice.
		Step 4 needs the same loads, and no byte and no turn more than these take. Step 6 needs fewer different
		elements for a warp, but float32 saves no turns by that: what it gains comes from deeper pieces in three stages. In step 7 a warp loads each element of
		its factors once, spread over the lanes, and the tensor cores share them out.`)
}
