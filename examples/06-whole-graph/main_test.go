package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/examples/internal/notebook/notebooktest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/gorgonia"
)

// The program runs on small sizes, its results are right (it fails if not), and its text,
// page and figures are there. After a change of the compiler, the text about the fused
// softmax must be looked at again.
func TestWholeGraph(t *testing.T) {
	onTapeMachine(t)
	notebooktest.Run(t, title, files, run, 7,
		"func gate(", "sigmoid(tanh(x0 * x1) + x2) * x0", "func newNetwork(", "func (net *network) train(", "(after lower)", "(gone after prune)",
		"relu(c + x0)", "c * step(x0)",
		"t0 = x0 - rowmax(x0);", "t1 = t0 - log(rowsum(exp(t0)));", "t2 = x1 * -", "t2 - exp(t1) * rowsum(t2)", "(after place)",
		"digits.png", "loss.png", "nodes.png", "passes.png", "memory.png", "steps.png", "roofline.png")
}

// onTapeMachine skips a test that compares with Gorgonia's machine on the CPU where
// that is its CUDA machine.
func onTapeMachine(t *testing.T) {
	if gorgonia.CUDA {
		t.Skip("in a build with the tag cuda, Gorgonia's tape machine is its CUDA machine")
	}
}

// The record has every figure that the program shows.
func TestRecordIsComplete(t *testing.T) {
	onTapeMachine(t)
	notebooktest.Recorded(t, files, run)
}

// With a record, here of a host's times, tables and charts have its values, and none
// prints as "-".
func TestWithRecord(t *testing.T) {
	onTapeMachine(t)
	record := map[string]any{"device": "NVIDIA X", "driver": "580.1", "cuda": "13.0", "date": "2026-01-02", "kernels": map[string]string{"sum": "0123456789ab"}}
	figures, data := map[string]any{}, map[string]any{"limits": limits{1e10, 1e10}}
	for _, key := range []string{"chain, one by one", "chain, in one launch", "batch 128, launches", "batch 128, run", "batch 4096, launches", "batch 4096, run"} {
		figures[key] = map[string]any{"value": 1234, "unit": "us"}
	}
	net, err := newNetwork(8, []int{pixels, 16, 16, classes})
	if err != nil {
		t.Fatal(err)
	}
	net.initialise(1)
	b := batch{}
	b.images, b.labels = drawBatch(rand.New(rand.NewPCG(1, 2)), 8)
	if err := net.bind(b); err != nil {
		t.Fatal(err)
	}
	vm, err := stheno.NewVM(net.graph, cudaops.OnHost(), cudaops.Timed())
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	steps := timeSteps(vm, 3)
	for i := range steps {
		steps[i].Roofline = 0.5
	}
	data["batch 128, steps"], data["batch 4096, steps"] = steps, steps
	record["figures"], record["data"] = figures, data
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	with := fstest.MapFS{"recorded.json": {Data: text}}
	for _, name := range []string{"chain.go", "model.go"} {
		with[name] = &fstest.MapFile{Data: testutil.Get[[]byte](t)(files.ReadFile(name))}
	}
	if missing, _, err := notebook.Unrecorded(with, run); err != nil || len(missing) > 0 {
		t.Errorf("the record of this test lacks %q, %v", missing, err)
	}
	shown, _, _ := notebooktest.Run(t, title, with, run, 7, "With the batch of 4096 images all steps together take 2 times", "1.23 ms", "softmax and loss", "1 product")
	if strings.Contains(shown, "not recorded") || strings.Contains(shown, "the one -") {
		t.Error("a recorded figure is not shown")
	}
}

// Trainings that differ, and one that learns nothing, are errors.
func TestCompare(t *testing.T) {
	good := trained{gradients: [][]float32{{1, 2}, {3}}, losses: []float64{2, 1}}
	for want, other := range map[string]trained{
		"gradients differ": {gradients: [][]float32{{1, 2.001}, {3}}, losses: good.losses},
		"losses differ":    {gradients: good.gradients, losses: []float64{2, 1.01}},
	} {
		s := &story{}
		if err := notebook.Try(func() { s.compare(&good, &other) }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that says %q", err, want)
		}
	}
	idle := trained{gradients: good.gradients, losses: []float64{2, 1.5}}
	if err := notebook.Try(func() { new(story).compare(&idle, &idle) }); err == nil || !strings.Contains(err.Error(), "fall") {
		t.Errorf("a loss that does not fall: %v", err)
	}
}

// A digit has ink, as much as a pen leaves, and two of a kind are not equal.
func TestDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for digit := range classes {
		var images [2][pixels]float32
		for i := range images {
			drawDigit(r, digit, images[i][:])
			ink := 0
			for _, v := range images[i] {
				if !(v >= 0 && v <= 1) {
					t.Fatalf("digit %d has a pixel of %v, want 0 to 1", digit, v)
				}
				if v > 0.5 {
					ink++
				}
			}
			if ink < 20 || ink > 300 {
				t.Errorf("digit %d has %d dark pixels of %d", digit, ink, pixels)
			}
		}
		if images[0] == images[1] {
			t.Errorf("digit %d is drawn twice alike", digit)
		}
	}
	images, labels := drawBatch(r, 7)
	for row := range slices.Chunk(labels.Data().([]float32), classes) {
		sum := float32(0)
		for _, v := range row {
			sum += v
		}
		if sum != 1 || slices.Max(row) != 1 {
			t.Errorf("got the label %v, want one 1", row)
		}
	}
	if images.Shape()[0] != 7 || images.Shape()[1] != pixels {
		t.Errorf("got images of shape %v", images.Shape())
	}
}

// Explain's output is read by its columns.
func TestListing(t *testing.T) {
	in := instr{"3", "%4 f32 (2), %5 f32 () device @16", "map f32, f32: t0 = x0 + x1; t0 * t0, exp(t0) + 123456789 %1 %2", "map"}
	if got := values(in); !slices.Equal(got, []string{"%4", "%5"}) {
		t.Errorf("values %q", got)
	}
	if got := in.operands(); !slices.Equal(got, []string{"%1", "%2"}) || !in.launches() {
		t.Errorf("operands %q, launches %v", got, in.launches())
	}
	want := "3  %4 f32 (2), %5 f32 () device @16  map f32, f32:                      map\n" +
		"                                          t0 = x0 + x1;\n" +
		"                                          t0 * t0, exp(t0) + 123456789\n" +
		"                                          %1 %2\n"
	if got := layOut([]instr{in}); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") || len(strings.Split(got, "\n")) != 5 {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := brief([]instr{in})[0].does; got != "map f32, f32: ... %1 %2" {
		t.Errorf("in brief %q", got)
	}
	if _, err := (listing{"fuse": {in}}).loss("fuse"); err == nil || !strings.Contains(err.Error(), "fuse") {
		t.Errorf("no softmax: %v", err)
	}
	if left := without([]instr{in, {defines: "%6 f32"}}, []instr{{defines: "%5 f32"}}); len(left) != 1 || left[0].defines != "%6 f32" {
		t.Errorf("left %v", left)
	}
}

// The share of the roof follows from the steps, and is not known without any.
func TestOverRoof(t *testing.T) {
	pr := profile{steps: []cudaops.Step{{Time: 100, Roofline: 0.5}, {Time: 300, Roofline: 0.25}}}
	if got := pr.overRoof(); math.Abs(got-3.2) > 1e-9 { // 400 / (50 + 75)
		t.Errorf("got %v, want 3.2", got)
	}
	if got := (profile{}).overRoof(); !math.IsNaN(got) {
		t.Errorf("no steps: got %v, want NaN", got)
	}
}
