package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/accuracy"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
)

// accuracyCase is a product whose errors are compared with another library's.
type accuracyCase struct {
	accuracy.Case
	peers string // folder of the other library's results, which may be ""
}

// Key implements benchCase.
func (c accuracyCase) Key() results.Key {
	return results.Key{Op: "MatMul", Case: c.Name(), Dtype: kernels.Float32.String()}
}

// accuracyFile is the name of the file with another library's result of a case, accuracyBy that of the file with the
// library's name.
func accuracyFile(c accuracy.Case) string { return strings.ReplaceAll(c.Name(), "/", "-") + ".f32" }

const accuracyBy = "by"

// measure implements benchCase: it computes the product as plans do by default, and by FMA.
func (c accuracyCase) measure(device cudaops.Device, _ randomBlock, _ int) (results.Row, error) {
	a, b := c.Matrices()
	fma := device.Device
	fma.FMA = true
	row := results.Row{Key: c.Key(), Accuracy: &results.Accuracy{}, Check: "all", Kernels: results.Digests{}}
	var computed [][]float32
	for _, dev := range []kernels.Device{device.Device, fma} {
		p := kernels.MatMul(dev, kernels.Float32, 1, c.M, c.N, c.K, false, false)
		out := make([]float32, c.M*c.N)
		if err := bench.Run(device.Ordinal, p, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out)); err != nil {
			return results.Row{}, err
		}
		digests, err := p.Digests()
		if err != nil {
			return results.Row{}, err
		}
		for source, digest := range digests {
			row.Kernels[source] = digest
		}
		row.Bytes, row.Flops = p.Bytes(), p.Flops
		computed = append(computed, out)
	}
	if c.peers != "" {
		by, err := os.ReadFile(filepath.Join(c.peers, accuracyBy))
		if err != nil {
			return results.Row{}, err
		}
		text, err := os.ReadFile(filepath.Join(c.peers, accuracyFile(c.Case)))
		if err != nil {
			return results.Row{}, err
		}
		if int64(len(text)) != 4*c.M*c.N {
			return results.Row{}, fmt.Errorf("%s: got %d bytes, want %d", accuracyFile(c.Case), len(text), 4*c.M*c.N)
		}
		row.Accuracy.By = strings.TrimSpace(string(by))
		computed = append(computed, kernels.Elements[float32](text))
	}
	errors := c.Errors(a, b, computed...)
	row.Accuracy.Ours, row.Accuracy.FMA = errors[0], errors[1]
	if len(errors) > 2 {
		row.Accuracy.Peer = &errors[2]
	}
	return row, nil
}

// specialCase is a timed product of square matrices, the first of which has special elements.
type specialCase struct {
	operands, kind string
	side           int64
}

// specials returns the timed cases of each size, that with the usual kind of A first.
func specials() (cases []benchCase) {
	for _, side := range []int64{256, 512, 1024, 4096} {
		for _, s := range [][2]string{{"uniform in [-1, 1)", "signed"}, {"all NaN", "nan"}, {"one in 1000 Inf or NaN", "special"}, {"one in 16 denormal", "mixed"}, {"all denormal", "denormal"}} {
			cases = append(cases, specialCase{s[0], s[1], side})
		}
	}
	return cases
}

// Key implements benchCase.
func (c specialCase) Key() results.Key {
	return results.Key{Op: results.SpecialTimes, Case: fmt.Sprintf("%d, %s", c.side, c.operands), Dtype: kernels.Float32.String()}
}

// measure implements benchCase.
func (c specialCase) measure(device cudaops.Device, _ randomBlock, runs int) (results.Row, error) {
	a, b := accuracy.Matrix(c.kind, 1, c.side, c.side), accuracy.Matrix("signed", 2, c.side, c.side)
	p := kernels.MatMul(device.Device, kernels.Float32, 1, c.side, c.side, c.side, false, false)
	digests, err := p.Digests()
	if err != nil {
		return results.Row{}, err
	}
	timing, err := bench.TimeWithin(device.Ordinal, p, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, runs, 60*time.Millisecond)
	if err != nil {
		return results.Row{}, err
	}
	slices.Sort(timing.Runs)
	n := len(timing.Runs)
	return results.Row{Key: c.Key(), Kernels: digests, Bytes: p.Bytes(), Flops: p.Flops, Runs: n, Check: "no",
		Micros: micros(timing.Runs[n/2]), Min: micros(timing.Runs[0]), Max: micros(timing.Runs[n-1])}, nil
}

// accuracyCases returns the products whose errors are measured, and those that are timed.
func accuracyCases(peers string) (cases []benchCase) {
	for _, c := range accuracy.Cases() {
		cases = append(cases, accuracyCase{c, peers})
	}
	return append(cases, specials()...)
}

// listAccuracy describes the products for another library.
type listAccuracy struct{}

// Run prints them.
func (listAccuracy) Run(c *console) error {
	cases := accuracy.Cases()
	type described struct {
		accuracy.Case
		File string `json:"file"`
	}
	var list []described
	for _, one := range cases {
		a, b := one.Matrices()
		one.Sums = [2]uint64{accuracy.Sum(a), accuracy.Sum(b)}
		list = append(list, described{one, accuracyFile(one)})
	}
	return json.NewEncoder(c.out).Encode(list)
}

// recordAccuracy measures errors of products.
type recordAccuracy struct {
	timing
	onDevice
	recorded
	Peers string `placeholder:"FOLDER" type:"existingdir" help:"Add the errors of the results that bench/accuracy_peers.py wrote there."`
	JSON  string `name:"json" required:"" placeholder:"FILE" type:"path" help:"File to write the results to; in a folder, one named after the GPU."`
}

// Run measures them.
func (r recordAccuracy) Run(c *console) error {
	device, err := deviceOf(r.device(), "records are made on one")
	if err != nil {
		return err
	}
	cases, err := choose(r.recorded.Run, accuracyCases(r.Peers), caseName)
	if err != nil {
		return err
	}
	m, err := onGPU(c, device, cases, r.runs(), r.seed())
	if err != nil {
		return err
	}
	m.path = r.JSON
	return m.run(c)
}
