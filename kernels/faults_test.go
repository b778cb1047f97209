package kernels_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// wants fails unless an error has some words; none for no error.
func wants(t *testing.T, what string, err error, words string) {
	t.Helper()
	if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
		t.Errorf("%s: got error %v, want %q", what, err, words)
	}
}

// A panic in a piece of Parallel, which other goroutines compute, is one of Parallel, so
// that its caller can recover; the other pieces are done by then.
func TestParallelPanics(t *testing.T) {
	const n, grain = 1 << 10, 1
	var done atomic.Int64
	defer func() {
		if r := recover(); r != "boom" {
			t.Errorf("recovered %v, want boom", r)
		}
		if done.Load() < 1 || done.Load() >= n {
			t.Errorf("%d of %d elements are done", done.Load(), n)
		}
	}()
	kernels.Parallel(n, grain, func(lo, hi int64) {
		if lo == 0 {
			panic("boom")
		}
		done.Add(hi - lo)
	})
	t.Error("Parallel returned")
}

// A fault of a Go body is an error of the run.
func TestRunErrors(t *testing.T) {
	plan := func(k *kernels.Kernel) *kernels.Plan {
		return &kernels.Plan{Op: "p", Inputs: []int64{16}, Out: 16, Launches: []kernels.Launch{{Kernel: k, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}}}
	}
	for want, p := range map[string]*kernels.Plan{
		"":                                       plan(&kernels.Kernel{Entry: "k", Body: func(kernels.Call) {}}),
		"p: got a launch without a kernel":       plan(nil),
		"p: kernel k has no Go body":             plan(&kernels.Kernel{Entry: "k"}),
		"the Go body of kernel k panicked: boom": plan(&kernels.Kernel{Entry: "k", Body: func(kernels.Call) { panic("boom") }}),
		"kernel k panicked: pieces": plan(&kernels.Kernel{Entry: "k", Body: func(kernels.Call) {
			kernels.Parallel(64, 1, func(lo, hi int64) { panic("pieces") })
		}}),
		"kernel k panicked: runtime error: index out of range [7]": plan(&kernels.Kernel{Entry: "k", Body: func(c kernels.Call) { kernels.Slice[float64](c, kernels.In(7)) }}),
		"rising offsets":                                   {Op: "p", Inputs: []int64{16}, Out: 16, Parts: []int64{0, 24}},
		"want 2: one for each input":                       {Op: "p", Inputs: []int64{16}, Out: 16, Accessed: []int64{16}},
		"got 17 bytes accessed of operand 1, want 0 to 16": {Op: "p", Inputs: []int64{16}, Out: 16, Accessed: []int64{0, 17}},
	} {
		wants(t, "Run", p.Run([][]byte{make([]byte, 16)}, make([]byte, 16), nil), want)
	}
}

// A plan is checked whoever made it; the limits of a GPU are not the host's.
func TestPlanCheck(t *testing.T) {
	gpu := kernels.Device{Name: "GPU", Major: 9, SMs: 132, SharedOptin: 227 << 10}
	for want, c := range map[string]struct {
		change func(p *kernels.Plan)
		host   string // the error there
	}{
		"":                                 {func(*kernels.Plan) {}, ""},
		"-1 bytes of input 1":              {func(p *kernels.Plan) { p.Inputs[1] = -1 }, "-1 bytes"},
		"-5 of scratch memory":             {func(p *kernels.Plan) { p.Scratch = -5 }, "-5 of scratch"},
		"begin at [1] of 60 bytes":         {func(p *kernels.Plan) { p.Parts = []int64{1} }, "begin at"},
		"begin at [0 32 16] of 60":         {func(p *kernels.Plan) { p.Parts = []int64{0, 32, 16} }, "begin at"},
		"begin at [0 64] of 60":            {func(p *kernels.Plan) { p.Parts = []int64{0, 64} }, "begin at"},
		"launch 0 of the plan has no k":    {func(p *kernels.Plan) { p.Launches[0].Kernel = nil }, "no kernel"},
		"add_f32: argument 0: got operand": {func(p *kernels.Plan) { p.Launches[0].Args[0] = kernels.Ref{Operand: 2} }, "operand 2 of a plan of 2"},
		"argument 3: got a string, want a": {func(p *kernels.Plan) { p.Launches[0].Args[3] = "8" }, "got a string"},
		"argument 3: got a <nil>":          {func(p *kernels.Plan) { p.Launches[0].Args[3] = nil }, "got a <nil>"},
		"0 threads":                        {func(p *kernels.Plan) { p.Launches[0].Block[0] = -1 }, ""},
		"1099511627776 threads":            {func(p *kernels.Plan) { p.Launches[0].Block = [3]int{1 << 62, 1 << 62, 1} }, ""},
		"at most 64 along axis 2":          {func(p *kernels.Plan) { p.Launches[0].Block = [3]int{1, 1, 65} }, ""},
		"want 1 to 2147483647 along axis":  {func(p *kernels.Plan) { p.Launches[0].Grid[0] = 1 << 31 }, ""},
		"want 1 to 65535 along axis 1":     {func(p *kernels.Plan) { p.Launches[0].Grid[1] = 1 << 16 }, ""},
		"want 1 to 65535 along axis 2":     {func(p *kernels.Plan) { p.Launches[0].Grid[2] = 0 }, ""},
		"as much as a block can have":      {func(p *kernels.Plan) { p.Launches[0].Shared = 228 << 10 }, ""},
		"got clusters of 16 blocks":        {func(p *kernels.Plan) { p.Launches[0].Cluster, p.Launches[0].Grid[0] = 16, 16 }, ""},
		"got clusters of 3 blocks":         {func(p *kernels.Plan) { p.Launches[0].Cluster, p.Launches[0].Grid[0] = 3, 8 }, ""},
		"got clusters of 2 blocks": {func(p *kernels.Plan) {
			p.Launches[0].Cluster, p.Launches[0].Cooperative, p.Launches[0].Grid[0] = 2, true, 8
		}, ""},
	} {
		for _, dev := range []kernels.Device{gpu, kernels.HostDevice()} {
			p := basic.Add(dev, kernels.Float32, 15)
			c.change(p)
			if dev.Kind == kernels.GPU {
				wants(t, "on a GPU", p.Check(dev), want)
			} else {
				wants(t, "on the host", p.Check(dev), c.host)
			}
		}
	}
	wants(t, "nil", (*kernels.Plan)(nil).Check(gpu), "no plan")
	wants(t, "nil", new(kernels.Checker).Check(nil), "no plan")
}

// broken is an image that fails in every way that an image can.
type broken string

func (b broken) Name() string {
	if b == "name" {
		panic("no name")
	}
	return "broken"
}

func (b broken) Code(int, int) (kernels.Code, error) {
	switch b {
	case "error":
		return kernels.Code{}, errors.New("no code today")
	case "empty":
		return kernels.Code{Target: "ptx"}, nil
	}
	panic("no code")
}

// Images of other modules, and the folders that they are in, may fail.
func TestLoad(t *testing.T) {
	for image, want := range map[kernels.Image]string{
		broken("panic"): "image broken: its Code panicked: no code",
		broken("error"): "image broken: no code today",
		broken("empty"): "image broken: it has no code",
		broken("name"):  "image of type kernels_test.broken: its Code panicked",
		text("x"):       "",
	} {
		_, err := testutil.Get[kernels.Image](t)(kernels.Load(image)).Code(9, 0)
		wants(t, "Code", err, want)
	}
	_, err := kernels.Load((*compiledText)(nil))
	wants(t, "Load", err, "without an image")
	l := kernels.NewLibrary("example.com/nowhere", nil)
	wants(t, "a library of no files", kernels.Check(l), "example.com/nowhere: open images/manifest.json: file does not exist")
	_, err = l.Source("x.cu")
	wants(t, "a library of no files", err, `no source "x.cu"`)
}
