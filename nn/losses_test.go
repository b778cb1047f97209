package nn_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The training of TestLossCurves, which bench/losses.py repeats.
const (
	curveSteps, curveWindow = 500, 20
	curveBatch              = 16
)

var curveGPT = GPT{Layers: 4, Width: 256, Heads: 4, Vocabulary: 256, Context: 256, Dtype: tensor.Float32}

// curveBatchOf sets the tokens and labels of a step: row r of step s begins at byte (16 s + r) 65537 modulo the number of beginnings.
func curveBatchOf(t *testing.T, g *Trained, text []byte, step int) {
	var tokens, labels []int32
	for row := range curveBatch {
		from := (step*curveBatch + row) * 65537 % (len(text) - curveGPT.Context)
		for i := range curveGPT.Context {
			tokens, labels = append(tokens, int32(text[from+i])), append(labels, int32(text[from+i+1]))
		}
	}
	shape := tensor.WithShape(curveBatch, curveGPT.Context)
	testutil.Do(t, G.Let(g.Tokens, tensor.New(shape, tensor.WithBacking(tokens))))
	testutil.Do(t, G.Let(g.Labels, tensor.New(shape, tensor.WithBacking(labels))))
}

// curve returns the losses of the training. All element types begin with the float32 values of the parameters.
func curve(t *testing.T, text []byte, dt tensor.Dtype, opts ...cudaops.Option) (losses []float64) {
	m := curveGPT
	first := testutil.Get[*Trained](t)(m.Train(curveBatch, m.Context)).Parameters
	m.Dtype = dt
	g := testutil.Get[*Trained](t)(m.Train(curveBatch, m.Context))
	for i, p := range g.Parameters {
		if x, ok := p.Value().Data().([]float64); ok {
			for k, v := range first[i].Value().Data().([]float32) {
				x[k] = float64(v)
			}
		}
	}
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.Graph, append(opts, cudaops.OnAny(), cudaops.Strict(), cudaops.Outputs(g.Loss),
		cudaops.Train(G.NewAdamW(G.WithLearnRate(3e-4), G.WithBeta2(0.95), cudaops.WeightDecay(0.1)), g.Parameters...))...))
	defer vm.Close()
	for step := range curveSteps {
		curveBatchOf(t, g, text, step)
		testutil.Do(t, vm.RunAll())
		loss := elements(t, g.Loss.Value())[0]
		if math.IsNaN(loss) {
			t.Fatalf("the loss of step %d is NaN", step)
		}
		losses = append(losses, loss)
	}
	return losses
}

// TestLossCurves trains a GPT of 4 layers on the file text.txt of the folder STHENO_RECORD for 500 steps of AdamW: in float64, float32, TF32, and with values in BF16 and F16. The means
// over 20 steps are within 0.5 % of float32's. PyTorch (bench/losses.py) makes the same steps in float64, float32 and BF16 from the same parameters. The first 50 losses in float64 are PyTorch's
// to 9 digits. Where there is PyTorch, the records of the set losses are written into the folder.
func TestLossCurves(t *testing.T) {
	folder := os.Getenv("STHENO_RECORD")
	if folder == "" {
		t.Skip("SKIPPED: STHENO_RECORD is not set")
	}
	text := testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(folder, "text.txt")))
	writeParameters(t, filepath.Join(folder, "gpt.safetensors"))
	devices, err := cudaops.Devices()
	testutil.SkipUnless(t, "GPU", err)
	d := devices[0]
	file := records.File{Set: records.Losses, GPU: d.Name, Compute: fmt.Sprintf("%d.%d", d.Major, d.Minor), SMs: d.SMs, L2: d.L2, Memory: d.Memory,
		Runs: []records.Run{{Driver: d.Driver, CUDA: d.CUDA, Go: runtime.Version(), Date: time.Now().Format(time.DateOnly)}}}
	full := map[string][]float64{}
	add := func(by, in string, losses []float64) {
		for at := 0; at < curveSteps; at += curveWindow {
			mean := 0.0
			for _, v := range losses[at:][:curveWindow] {
				mean += v / curveWindow
			}
			if by == "" {
				full[in] = append(full[in], mean)
			}
			file.Records = append(file.Records, records.Record{Kind: records.Loss, By: by, Values: map[string]float64{"loss": mean},
				Key: records.Key{Op: "GPT, 4 layers, width 256", Case: fmt.Sprintf("%d to %d", at+1, at+curveWindow), Dtype: in}})
		}
		t.Logf("%s %s: %.6f", by, in, losses)
	}
	double := curve(t, text, tensor.Float64)
	add("", "float64", double)
	add("", records.LossesIn, curve(t, text, tensor.Float32))
	for _, v := range []struct {
		in string
		cudaops.Option
	}{{"TF32", cudaops.Precision(cudaops.TF32)}, {"Mixed(BF16)", cudaops.Mixed(cudaops.BF16)},
		{"Mixed(F16)", cudaops.Options(cudaops.Mixed(cudaops.F16), cudaops.LossScaling(cudaops.GradScaler{}))}} {
		add("", v.in, curve(t, text, tensor.Float32, v.Option))
		for i, mean := range full[v.in] {
			if want := full[records.LossesIn][i]; !(math.Abs(mean-want) <= 0.005*want) {
				t.Errorf("%s, steps from %d on: mean loss %v, want %v within 0.5 %%", v.in, i*curveWindow+1, mean, want)
			}
		}
	}
	out, err := exec.Command("python3", filepath.Join("..", "bench", "losses.py"), folder).CombinedOutput()
	if err != nil {
		t.Fatalf("bench/losses.py: %v\n%s", err, out)
	}
	var peers []struct {
		By, In string
		Losses []float64
	}
	testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(folder, "peers.json"))), &peers))
	for _, p := range peers {
		add(p.By, p.In, p.Losses)
		for i := range 50 {
			if p.In == "float64" && !(math.Abs(p.Losses[i]-double[i]) <= 1e-9*double[i]) {
				t.Errorf("step %d in float64: loss %v, want %v as by %s", i, double[i], p.Losses[i], p.By)
			}
		}
	}
	testutil.Do(t, file.Write(filepath.Join(folder, records.Name(d.Name))))
}

// writeParameters writes the first parameters of curveGPT.
func writeParameters(t *testing.T, path string) {
	var list []safetensors.Tensor
	for _, p := range testutil.Get[*Trained](t)(curveGPT.Train(1, 1)).Parameters {
		list = append(list, safetensors.Tensor{Name: p.Name(), Dtype: "F32", Shape: p.Shape(), Data: kernels.Bytes(p.Value().Data().([]float32))})
	}
	f := testutil.Get[*os.File](t)(os.Create(path))
	testutil.Do(t, safetensors.Write(f, nil, list))
	testutil.Do(t, f.Close())
}
