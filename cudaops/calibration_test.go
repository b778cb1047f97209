package cudaops

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/world"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
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
			vms[rank] = &VM{config: config{world: &world.World{Rank: rank, Size: 3, Local: rank, Address: address}, rankTimeout: []time.Duration{20 * time.Second}}}
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
