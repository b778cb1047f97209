package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// sweepRow is the time of a candidate.
type sweepRow struct {
	Dtype string
	Shape []int64
	Name  string
	Us    float64
}

// sweepCase is a sum of outer x r x inner elements over r.
type sweepCase struct {
	dt    kernels.Dtype
	shape []int64
}

// The times of all candidates of sums, as lines of JSON in sums.json of the folder STHENO_RECORD. STHENO_SWEEP has the number of drawn sums, their seed, for how
// many seconds, and further sums: "150 7 50 f32:1,256,1000".
func TestSweep(t *testing.T) {
	fields := strings.Fields(os.Getenv("STHENO_SWEEP"))
	if len(fields) == 0 {
		t.Skip("SKIPPED, NOT TIMED: STHENO_SWEEP is not set")
	}
	number := func(s string) int { return testutil.Get[int](t)(strconv.Atoi(s)) }
	drawn, seed, seconds := number(fields[0]), number(fields[1]), number(fields[2])
	var cases []sweepCase
	for _, f := range fields[3:] {
		name, sizes, _ := strings.Cut(f, ":")
		c := sweepCase{dt: f32}
		if name == "f64" {
			c.dt = f64
		}
		for _, s := range strings.Split(sizes, ",") {
			c.shape = append(c.shape, int64(number(s)))
		}
		cases = append(cases, c)
	}
	r := rand.New(rand.NewPCG(uint64(seed), 35))
	for range drawn {
		cases = append(cases, drawSum(r))
	}
	g := sweepGPU(t, r)
	defer g.Close()
	done := sweep(t, g, "sums.json", seconds, cases, func(c sweepCase) (names []string, plans []*kernels.Plan) {
		names, _, plans = reduce.Candidates(g.Device(), c.dt, c.shape[0], c.shape[1], c.shape[2])
		return names, plans
	}, func(c sweepCase, us map[string]float64) (rows []any) {
		for _, name := range slices.Sorted(maps.Keys(us)) {
			rows = append(rows, sweepRow{c.dt.String(), c.shape, name, us[name]})
		}
		return rows
	})
	if done < len(cases) {
		t.Fatalf("out of time after %d of %d cases", done, len(cases))
	}
}

// sweep times the candidates of cases for so many seconds, and writes the rows of each case, with the times of its candidates, as lines of JSON to a file of the
// folder STHENO_RECORD. It returns how many cases were timed whole.
func sweep[C any](t *testing.T, g *exec.GPUBackend, name string, seconds int, cases []C, candidates func(C) ([]string, []*kernels.Plan),
	rows func(c C, us map[string]float64) []any) (done int) {
	file := testutil.Get[*os.File](t)(os.Create(filepath.Join(os.Getenv("STHENO_RECORD"), name)))
	defer file.Close()
	out := json.NewEncoder(file)
	start := time.Now()
	for _, c := range cases {
		names, plans := candidates(c)
		least, times := 1e30, map[string]float64{}
		for k, p := range plans {
			if time.Since(start) > time.Duration(seconds)*time.Second {
				return done
			}
			us, err := sweepTime(g, p, sweepArena, least)
			if err != nil {
				t.Errorf("%+v, %s: %v", c, names[k], err)
				continue
			}
			least = min(least, us)
			times[names[k]] = math.Round(us*100) / 100
		}
		for _, row := range rows(c, times) {
			testutil.Do(t, out.Encode(row))
		}
		done++
	}
	return done
}

const sweepArena = 14 << 30 // bytes of operands; behind them is room for copies

// sweepGPU returns a GPU whose arena holds numbers in [-1, 1).
func sweepGPU(t *testing.T, r *rand.Rand) *exec.GPUBackend {
	g := testutil.Get[*exec.GPUBackend](t)(exec.OpenGPU(0))
	testutil.Do(t, g.Alloc(sweepArena+4<<30))
	block := make([]byte, 64<<20)
	values := kernels.Elements[float32](block)
	for i := range values {
		values[i] = r.Float32()*2 - 1
	}
	testutil.Do(t, g.Upload(exec.Span{Size: int64(len(block))}, block))
	for done := int64(len(block)); done < sweepArena; done *= 2 {
		testutil.Do(t, g.Stream().Copy(g.Address(done), g.Address(0), min(done, sweepArena-done)))
	}
	testutil.Do(t, g.Sync())
	return g
}

// logUniform draws a number, small ones as often as large ones.
func logUniform(r *rand.Rand, low, high float64) int64 {
	return int64(math.Exp(math.Log(low) + r.Float64()*(math.Log(high)-math.Log(low))))
}

// drawSum draws a sum of 1 KB to 400 MB.
func drawSum(r *rand.Rand) sweepCase {
	dt := f32
	if r.IntN(4) == 0 {
		dt = f64
	}
	n := logUniform(r, 1e3, 4e8) / dt.Size()
	inner, outer := int64(1), int64(1)
	switch r.IntN(3) {
	case 0:
		outer = logUniform(r, 1, float64(n))
	case 1:
		inner = logUniform(r, 2, float64(n))
	case 2:
		outer = logUniform(r, 1, float64(n))
		inner = logUniform(r, 1, float64(n/outer)+1)
	}
	if r.IntN(6) == 0 {
		outer, inner = 1, 1
	}
	return sweepCase{dt, []int64{outer, max(n/outer/inner, 1), inner}}
}

// bindCopies binds a plan to its operands, some copies of them one after the other in an arena: inputs, which stay what they are, at its start, and outputs before the scratch memory at its end.
func bindCopies(g *exec.GPUBackend, p *kernels.Plan, arena int64, copies int) (turns []*loader.Bound, err error) {
	scratch := exec.Span{Offset: arena - padded(p.Scratch), Size: padded(p.Scratch)}
	size, end := int64(0), scratch.Offset
	for range copies {
		var in []exec.Span
		for _, bytes := range p.Inputs {
			in = append(in, exec.Span{Offset: size, Size: bytes})
			size += padded(bytes)
		}
		if end -= padded(p.Out); size > end-(1<<30) {
			return turns, fmt.Errorf("%d bytes of operands", p.Bytes())
		}
		run, err := g.Load(p, in, exec.Outputs(p, exec.Span{Offset: end, Size: p.Out}), scratch)
		if err != nil {
			return turns, err
		}
		turns = append(turns, run)
	}
	return turns, nil
}

// timedWork returns the time of work on a GPU's stream in us. The host queues the work while a copy runs, so that the device does not wait for the host.
func timedWork(g *exec.GPUBackend, work func() error) (float64, error) {
	ahead := func() error {
		return g.Stream().Copy(g.Address(sweepArena+(2<<30)), g.Address(sweepArena+(3<<30)), 128<<20)
	}
	for _, f := range []func() error{ahead, func() error { return g.Record(0) }, work, func() error { return g.Record(1) }, g.Sync} {
		if err := f(); err != nil {
			return 0, err
		}
	}
	d, err := g.Elapsed(0, 1)
	return float64(d.Nanoseconds()) / 1e3, err
}

// sweepTime times a plan: launches of a graph, if it takes less than 200 us, as the launches themselves cost as much as a small kernel. It stops early
// where the plan takes more than three times the least time.
func sweepTime(g *exec.GPUBackend, p *kernels.Plan, arena int64, least float64) (us float64, err error) {
	copies := int(min(max((4*g.Device().L2+p.Bytes()-1)/max(p.Bytes(), 1), 1), 64))
	turns, err := bindCopies(g, p, arena, copies)
	defer func() {
		for _, t := range turns {
			err = errors.Join(err, t.Close())
		}
	}()
	if err != nil {
		return 0, err
	}
	if err := g.Events(2); err != nil {
		return 0, err
	}
	calls := 0
	run := func(s *driver.Stream, n int) error {
		for range n {
			if err := turns[calls%copies].Run(s); err != nil {
				return err
			}
			calls++
		}
		return nil
	}
	if err := run(g.Stream(), 1); err != nil {
		return 0, err
	}
	us = math.Inf(1)
	for range 2 { // one may have waited for the host
		once, err := timedWork(g, func() error { return run(g.Stream(), 1) })
		if err != nil {
			return 0, err
		}
		if us = min(us, once); us <= 3*least+30 {
			break
		}
	}
	if us > 3*least+30 {
		return us, nil
	}
	n, work := 1, func() error { return run(g.Stream(), 1) }
	if us < 200 {
		n = int(min(max(300/us, 4), 64))
		n = max(n, min(copies, int(2*g.Device().L2/max(p.Bytes(), 1)), int(2000/us))) // else a graph's operands stay in L2
		graph, err := g.Context().Capture(true, func(s *driver.Stream) error { return run(s, n) })
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, graph.Close()) }()
		work = func() error { return g.Stream().LaunchGraph(graph) }
		if err := work(); err != nil {
			return 0, err
		}
	}
	var times []float64
	for range 7 {
		us, err := timedWork(g, work)
		if err != nil {
			return 0, err
		}
		times = append(times, us/float64(n))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
