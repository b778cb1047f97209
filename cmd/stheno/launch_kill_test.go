//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rankFolder is the variable of the environment that makes the test's program one rank of a training, with its checkpoint and the number
// of its process there. The limit of a training is that of [cudaops.RankTimeout]. With STHENO_RANK_GPUS ranks are on GPUs.
const rankFolder, rankSteps, rankLimit, rankGPUs = "STHENO_RANK_FOLDER", "STHENO_RANK_STEPS", "STHENO_RANK_LIMIT", "STHENO_RANK_GPUS"

// trainRank trains on shuffled data with dropout, an average and the solver's state divided among the ranks, and saves every third step.
func trainRank(t *testing.T, path string, steps int, pause time.Duration, opts ...cudaops.Option) {
	node := testutil.Get[*G.Node](t)
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(shape ...int) *tensor.Dense {
		d := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
		for i := range d.Data().([]float32) {
			d.Data().([]float32)[i] = float32(r.NormFloat64())
		}
		return d
	}
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(4, 7))
	y := G.NewMatrix(g, tensor.Float32, G.WithName("y"), G.WithShape(4, 2))
	w := G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(7, 31), G.WithValue(draw(7, 31)))
	v := G.NewMatrix(g, tensor.Float32, G.WithName("v"), G.WithShape(31, 2), G.WithValue(draw(31, 2)))
	h := node(ops.Dropout(node(G.Tanh(node(G.Mul(x, w)))), 0.3))
	loss := node(G.Mean(node(G.Square(node(G.Sub(node(G.Mul(h, v)), y))))))
	testutil.Get[G.Nodes](t)(G.Grad(loss, w, v))
	solver := G.NewAdamSolver(G.WithLearnRate(0.01))
	opts = append(opts, cudaops.Train(solver, w, v), cudaops.ShardSolver(), cudaops.EMA(0.9), cudaops.StepEvery(2), cudaops.Split(x, y), cudaops.Seed(3))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, opts...))
	defer vm.Close()
	data := testutil.Get[*train.Data](t)(train.NewData(train.Columns{x: draw(50, 7), y: draw(50, 2)}))
	_, err := train.Run(t.Context(), vm, loss, data.Shuffle(5), train.Steps(steps), train.Epochs(steps), train.Checkpoint(path, 3),
		train.AfterStep(1, func(train.Step) error { time.Sleep(pause); return nil }))
	testutil.Do(t, err)
}

// TestRank is a rank that [TestLaunchKilled] and [TestLaunchHangs] start.
func TestRank(t *testing.T) {
	folder := os.Getenv(rankFolder)
	if folder == "" {
		return
	}
	rank := os.Getenv("RANK")
	testutil.Do(t, os.WriteFile(filepath.Join(folder, "process"+rank), []byte(strconv.Itoa(os.Getpid())), 0o600))
	limit := testutil.Get[time.Duration](t)(time.ParseDuration(os.Getenv(rankLimit)))
	steps := testutil.Get[int](t)(strconv.Atoi(os.Getenv(rankSteps)))
	path := filepath.Join(folder, "run.safetensors")
	if rank != "0" { // a machine of its own
		path = filepath.Join(folder, "rank"+rank, "run.safetensors")
	}
	on := cudaops.OnHost()
	if os.Getenv(rankGPUs) != "" {
		on = cudaops.OnDevice(0) // numbered as the process
	}
	trainRank(t, path, steps, 2*time.Millisecond, on, cudaops.Processes(), cudaops.RankTimeout(limit))
}

// launched runs TestRank by stheno launch on some ranks. strike, called when the training has begun or gone on, gets the numbers of the processes.
func launched(t *testing.T, ranks int, folder string, steps int, limit time.Duration, strike func(processes []int)) (status int, out string) {
	t.Setenv(rankFolder, folder)
	t.Setenv(rankSteps, strconv.Itoa(steps))
	t.Setenv(rankLimit, limit.String())
	for r := range ranks {
		if err := os.Remove(filepath.Join(folder, fmt.Sprint("process", r))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	var o, e bytes.Buffer
	done := make(chan int)
	go func() {
		done <- run([]string{"launch", "-n", strconv.Itoa(ranks), "--", os.Args[0], "-test.run=^TestRank$", "-test.count=1"}, &o, &e)
	}()
	var processes []int
	for len(processes) < ranks {
		select {
		case status = <-done:
			return status, o.String() + e.String()
		case <-time.After(time.Millisecond):
		}
		processes = processes[:0]
		for r := range ranks {
			b, _ := os.ReadFile(filepath.Join(folder, fmt.Sprint("process", r)))
			if n, err := strconv.Atoi(string(b)); err == nil {
				processes = append(processes, n)
			}
		}
	}
	strike(processes)
	status = <-done
	return status, o.String() + e.String()
}

// content returns the tensors and the metadata of a file, but its checksum.
func content(t *testing.T, path string) (text []string) {
	f := testutil.Get[*safetensors.File](t)(safetensors.Open(path))
	defer f.Close()
	for i := range f.Tensors {
		of := &f.Tensors[i]
		n := testutil.Get[int](t)(of.Bytes())
		b := make([]byte, n)
		testutil.Do(t, of.Read(b))
		text = append(text, fmt.Sprintf("%s %s %v %x", of.Name, of.Dtype, of.Shape, b))
	}
	for key, v := range f.Metadata {
		if key != "stheno.sha256" {
			text = append(text, key+" "+v)
		}
	}
	slices.Sort(text)
	return text
}

// A training of which one rank is killed at a random time, again and again, ends with the bits of one that was not, on as many ranks of
// one process. STHENO_KILLS sets the number of kills.
func TestLaunchKilled(t *testing.T) { onRanks(t, testLaunchKilled) }

// onRanks runs a test with 3 to 8 ranks on the host and, where there are several GPUs, with one on each; on is the option of ranks in one process.
func onRanks(t *testing.T, test func(t *testing.T, ranks int, on cudaops.Option)) {
	t.Run("hosts", func(t *testing.T) {
		ranks := 3 + testutil.Random(t).IntN(6)
		test(t, ranks, cudaops.OnHosts(ranks))
	})
	t.Run("gpus", func(t *testing.T) {
		list, err := cudaops.Devices()
		if err == nil && len(list) < 2 {
			err = fmt.Errorf("got %d GPU, want two", len(list))
		}
		testutil.SkipUnless(t, "GPUS", err)
		t.Setenv(rankGPUs, "1")
		test(t, len(list), cudaops.AllDevices())
	})
}

func testLaunchKilled(t *testing.T, ranks int, on cudaops.Option) {
	kills := 4
	if s := os.Getenv("STHENO_KILLS"); s != "" {
		kills = testutil.Get[int](t)(strconv.Atoi(s))
	}
	r := testutil.Random(t)
	folder, steps := t.TempDir(), 60*kills
	path := filepath.Join(folder, "run.safetensors")
	saved := func() (at time.Time) {
		if info, err := os.Stat(path); err == nil {
			at = info.ModTime()
		}
		return at
	}
	for made := 0; ; {
		rank := -1
		status, out := launched(t, ranks, folder, steps, time.Minute, func(processes []int) {
			if made == kills {
				return
			}
			rank = r.IntN(len(processes))
			// Every third kill is while the ranks start, join or load, the others while they train or save.
			for before, began := saved(), time.Now(); made%3 > 0 && saved() == before && time.Since(began) < time.Minute; {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
			if err := syscall.Kill(processes[rank], syscall.SIGKILL); err != nil {
				t.Logf("rank %d: %v", rank, err)
			}
		})
		if status == 0 {
			if made < kills {
				t.Errorf("the training ended after %d kills, want %d", made, kills)
			}
			break
		}
		if rank < 0 || !strings.Contains(out, fmt.Sprintf("rank %d: ", rank)) {
			t.Fatalf("after %d kills: got status %d without rank %d in\n%s", made, status, rank, out)
		}
		made++
		if f, err := safetensors.Open(path); err == nil {
			t.Logf("killed rank %d, the file is at %.40s", rank, f.Metadata["position"])
			testutil.Do(t, f.Close())
		}
	}
	want := filepath.Join(t.TempDir(), "run.safetensors")
	trainRank(t, want, steps, 0, on)
	if !slices.Equal(content(t, path), content(t, want)) {
		t.Errorf("got another state than without kills")
	}
}

// A rank that hangs ends the others within twice the limit, with an error that names it, and is killed when the grace time is over.
func TestLaunchHangs(t *testing.T) {
	defer func(was time.Duration) { graceTime = was }(graceTime)
	graceTime = time.Second
	onRanks(t, testLaunchHangs)
}

func testLaunchHangs(t *testing.T, ranks int, _ cudaops.Option) {
	limit := 5 * time.Second // the ranks of a busy machine start within it
	if os.Getenv(rankGPUs) != "" {
		limit = 15 * time.Second
	}
	rank, folder := testutil.Random(t).IntN(ranks), t.TempDir()
	began := time.Now()
	status, out := launched(t, ranks, folder, 100_000, limit, func(processes []int) {
		for path := filepath.Join(folder, "run.safetensors"); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); err == nil { // all ranks train
				break
			}
		}
		began = time.Now()
		testutil.Do(t, syscall.Kill(processes[rank], syscall.SIGSTOP))
	})
	if took := time.Since(began); status == 0 || !strings.Contains(out, fmt.Sprintf("rank %d: no answer within %v", rank, limit)) || took > 2*limit+graceTime+10*time.Second {
		t.Errorf("rank %d hangs: got status %d after %v, %s", rank, status, took, out)
	}
}
