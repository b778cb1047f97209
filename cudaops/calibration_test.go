package cudaops

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	testexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/exec/exectest"
	"github.com/stheno-ml/stheno/cudaops/internal/world"
	"github.com/stheno-ml/stheno/internal/calibration"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var calibrated = kernels.Calibration{Memory: 3e12, L2: 5e12, FMAs: 3e13, Launch: 3, Load: 1, Barrier: 1}

// calibratedBackend is the host with a calibration, or with a file of one that is not used.
type calibratedBackend struct {
	*exec.HostBackend
	calibration kernels.Calibration
	fault       error
}

func (b calibratedBackend) Device() kernels.Device {
	d := b.HostBackend.Device()
	d.Calibration = b.calibration
	return d
}

func (b calibratedBackend) Uncalibrated() error { return b.fault }

// The report and the snapshot name the calibration, and the report says why a file is ignored.
func TestCalibrationIsNamed(t *testing.T) {
	const path = "calibration.json: got version 2"
	for name, b := range map[string]calibratedBackend{
		"none": {}, "one": {calibration: calibrated}, "ignored": {fault: errors.New(path)},
	} {
		g, w := G.NewGraph(), (*G.Node)(nil)
		w = G.NewVector(g, G.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(vector(1, 2)))
		cost := testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(G.Square(w))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, w))
		b.HostBackend = &exec.HostBackend{}
		c := &config{}
		Options(OnHost(), Train(G.NewVanillaSolver(), w))(c)
		vm := testutil.Get[*VM](t)(newVM(g, c, b))
		defer vm.Close()
		testutil.Do(t, vm.RunAll())
		r, s := vm.Report(), testutil.Get[*Snapshot](t)(vm.Snapshot())
		want := b.calibration.Name()
		if r.Calibration != want || s.Calibration != want || (want == "") != (name != "one") {
			t.Errorf("%s: the report names the calibration %q, the snapshot %q, want %q", name, r.Calibration, s.Calibration, want)
		}
		if got := vm.target.Device.Calibration; got != b.calibration {
			t.Errorf("%s: plans are made by %+v, want %+v", name, got, b.calibration)
		}
		text := r.String()
		if strings.Contains(text, "calibration "+calibrated.Name()) != (name == "one") || strings.Contains(text, "calibration ignored: "+path) != (name == "ignored") {
			t.Errorf("%s: the report says\n%s", name, text)
		}
	}
}

// All processes plan by the calibration of rank 0, whatever theirs is, and report no file of their own.
func TestProcessesUseTheCalibrationOfRank0(t *testing.T) {
	other := calibrated
	other.Launch *= 2
	for name, own := range map[string][3]kernels.Calibration{
		"rank 0 alone": {calibrated, {}, {}}, "all but rank 0": {{}, calibrated, calibrated}, "three": {calibrated, other, {}},
	} {
		address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
		var wait sync.WaitGroup
		vms, errs := [3]*VM{}, [3]error{}
		for rank := range vms {
			vms[rank] = &VM{config: config{join: joinWorld, world: &world.World{Rank: rank, Size: 3, Local: rank, Address: address}, rankTimeout: []time.Duration{20 * time.Second}}}
			wait.Go(func() {
				var peers *world.Peers
				b := calibratedBackend{&exec.HostBackend{}, own[rank], fmt.Errorf("file of rank %d", rank)}
				if peers, errs[rank] = vms[rank].join(b); errs[rank] == nil {
					errs[rank] = peers.Agree("all have joined")
					peers.Close()
				}
			})
		}
		wait.Wait()
		testutil.Do(t, errors.Join(errs[:]...))
		for rank, vm := range vms {
			if got := vm.target.Device.Calibration; got != own[0] || vm.calibration != own[0].Name() {
				t.Errorf("%s: rank %d plans by %+v, named %q, want %+v of rank 0", name, rank, got, vm.calibration, own[0])
			}
			if (vm.uncalibrated != "") != (rank == 0) {
				t.Errorf("%s: rank %d reports the file %q, want that of rank 0 on rank 0 alone", name, rank, vm.uncalibrated)
			}
		}
	}
}

// sumsOf returns a graph of sums, of which a calibration chooses other kernels, and its results.
func sumsOf(t *testing.T, r *rand.Rand) (g *G.ExprGraph, sums G.Nodes) {
	g = G.NewGraph()
	for i, s := range calibratedSums {
		x := G.NewMatrix(g, tensor.Float64, G.WithName(fmt.Sprint("x", i)), G.WithShape(s...), G.WithValue(draw(r, tensor.Float64, s...)))
		sums = append(sums, testutil.Get[*G.Node](t)(ops.Sum(x, 0)))
	}
	return g, sums
}

var calibratedSums = [][]int{{1024, 1000}, {100_000, 10}, {3000, 300}, {1 << 18, 2}, {256, 1000}}

// slowLaunches is a calibration of a device on which launches and barriers are slow beside memory.
var slowLaunches = kernels.Calibration{Memory: 4.4e12, L2: 6e12, FMAs: 3e13, Launch: 500, Load: 0.1, Barrier: 0.1}

// TestCalibratedProgram is the program that TestCalibratedRuns starts: it prints the bits of sums and what the report says of calibrations.
func TestCalibratedProgram(t *testing.T) {
	if os.Getenv("STHENO_PROGRAM") != "calibrated sums" {
		return
	}
	g, sums := sumsOf(t, rand.New(rand.NewPCG(35, 4)))
	vm := machine(t, g, OnDevice(0))
	testutil.Do(t, vm.RunAll())
	h := sha256.New()
	for _, n := range sums {
		h.Write(testutil.Get[[]byte](t)(values.Bytes(n.Value())))
	}
	r := vm.Report()
	fmt.Printf("bits %x\ncalibration %s\nignored %s\n", h.Sum(nil), r.Calibration, r.Uncalibrated)
}

// On a GPU a file changes the bits of sums, and repeats them in every process. A damaged file, and one of another GPU or version, changes none.
func TestCalibratedRuns(t *testing.T) {
	devices, err := Devices()
	testutil.SkipUnless(t, "GPU", err)
	dev := devices[0].Device
	folder := t.TempDir()
	write := func(name string, dev kernels.Device) string {
		path := filepath.Join(folder, name)
		testutil.Do(t, calibration.Write(path, dev, slowLaunches))
		return path
	}
	changed := func(name, old, to string) string {
		path := write(name, dev)
		text := string(testutil.Get[[]byte](t)(os.ReadFile(path)))
		testutil.Do(t, os.WriteFile(path, []byte(strings.Replace(text, old, to, 1)), 0o666))
		return path
	}
	other := dev
	other.SMs++
	run := func(file string) (bits, name, ignored string) {
		c := testexec.Command(os.Args[0], "-test.run=^TestCalibratedProgram$", "-test.count=1")
		c.Env = append(os.Environ(), "STHENO_PROGRAM=calibrated sums", calibration.Variable+"="+file)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, line := range strings.Split(string(out), "\n") {
			word, rest, _ := strings.Cut(line, " ")
			switch word {
			case "bits":
				bits = rest
			case "calibration":
				name = rest
			case "ignored":
				ignored = rest
			}
		}
		return bits, name, ignored
	}
	plain, name, ignored := run(calibration.None)
	if plain == "" || name != "" || ignored != "" {
		t.Errorf("without a calibration: got bits %q, the calibration %q, ignored %q", plain, name, ignored)
	}
	good := write("good", dev)
	first, name, ignored := run(good)
	if again, _, _ := run(good); first != again || first == plain || name != slowLaunches.Name() || ignored != "" {
		t.Errorf("with a calibration: got bits %s and %s, without one %s, want the same and others than without; its name %q, want %q; ignored %q", first, again, plain, name, slowLaunches.Name(), ignored)
	}
	for what, path := range map[string]string{"damaged": changed("damaged", "500", "501"), "of another GPU": write("other", other), "of another version": changed("version", `"version": 1`, `"version": 0`)} {
		if bits, name, ignored := run(path); bits != plain || name != "" || !strings.Contains(ignored, path) {
			t.Errorf("a file %s: got bits %s, want %s as without; the calibration %q; ignored %q, want a reason with the path %s", what, bits, plain, name, ignored, path)
		}
	}
}

// A calibration changes the plans of the sums of [TestCalibratedRuns].
func TestCalibrationChangesPlans(t *testing.T) {
	plans := func(c kernels.Calibration) (plans []string) {
		g, _ := sumsOf(t, rand.New(rand.NewPCG(35, 4)))
		dev := exectest.H200
		dev.Calibration = c
		vm := testutil.Get[*VM](t)(newVM(g, &config{}, &exectest.Recorder{For: dev}))
		defer vm.Close()
		for _, in := range vm.graph.Program.Instrs {
			if in.Plan != nil {
				plans = append(plans, in.Plan.String())
			}
		}
		return plans
	}
	before, after := plans(kernels.Calibration{}), plans(slowLaunches)
	if len(before) != len(calibratedSums) || slices.Equal(before, after) {
		t.Errorf("got the plans %v, with a calibration %v, want others for some of %d sums", before, after, len(calibratedSums))
	}
}
