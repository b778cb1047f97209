package cudaops

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	tcp "net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// In a process, the test is one rank: it trains on its rows of batches that the port gives a seed, with initial values that only rank 0
// has, and prints the parameters. Rank 1 ends after leaves steps, or hangs after -leaves; for 0 it has another learning rate than the others.
func asProcess(t *testing.T, leaves int) {
	limit := time.Minute
	if leaves < 0 {
		limit = hangTimeout
	}
	seed := processSeed(t)
	n := newShare(t, tensor.Float64, 3, []int{4, 5, 2}, seed)
	rate := 0.001
	if leaves == 0 && os.Getenv("RANK") == "1" { // the program is that of the others
		rate = 0.002
	}
	opts := []Option{processDevice(), Processes(), RankTimeout(limit), Split(n.x, n.y), Train(G.NewAdamSolver(G.WithLearnRate(rate)), n.learnables...)}
	vm := testutil.Get[*VM](t)(NewVM(n.g, opts...))
	rank, all := vm.Process()
	if rank > 0 {
		testutil.Do(t, G.Let(n.learnables[0], tensor.Ones(tensor.Float64, 4, 5)))
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for step := range 20 {
		if rank == 1 && step == leaves {
			os.Exit(0)
		}
		if rank == 1 && step == -leaves {
			time.Sleep(hangTimeout + time.Second) // until the others have given up
		}
		for s := range all {
			x, y := draw(r, tensor.Float64, 3, 4), draw(r, tensor.Float64, 3, 2)
			if s == rank {
				n.feed(t, vm, x, y)
			}
		}
		testutil.Do(t, vm.RunAll())
	}
	testutil.Do(t, vm.Close())
	var list [][]float64
	for _, p := range n.learnables {
		list = append(list, p.Value().Data().([]float64))
	}
	fmt.Printf("\nparameters %s\n", testutil.Get[[]byte](t)(json.Marshal(list)))
}

// processes is the number of processes that tests start on the host.
const processes = 3

// hangTimeout is the RankTimeout of processes of which one hangs.
const hangTimeout = 4 * time.Second

// onGPUs is a variable of the environment of processes that run on GPUs.
const onGPUs = "STHENO_TEST_ON_GPUS"

// processDevice returns the option of the device of a process.
func processDevice() Option {
	if os.Getenv(onGPUs) != "" {
		return OnDevice(0) // numbered as the process
	}
	return OnHost()
}

func freePort(t *testing.T) int {
	l := testutil.Get[tcp.Listener](t)(tcp.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().(*tcp.TCPAddr).Port
}

// startOn runs a test of this program in n processes, with variables for each and an argument, and returns what they print.
func startOn(t *testing.T, n, port int, test, argument string, variables func(rank string) []string) []string {
	var wait sync.WaitGroup
	out := make([]string, n)
	for rank := range n {
		wait.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.count=1", "--", argument)
			c.Env = append(os.Environ(), append(variables(strconv.Itoa(rank)), "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port))...)
			b, _ := c.CombinedOutput()
			out[rank] = string(b)
		})
	}
	wait.Wait()
	return out
}

// startProcesses is startOn with torchrun's variables.
func startProcesses(t *testing.T, test string) []string {
	return startOn(t, processes, freePort(t), test, "child", func(r string) []string {
		return []string{"RANK=" + r, "WORLD_SIZE=" + strconv.Itoa(processes), "LOCAL_RANK=" + r}
	})
}

// asOnOneHost is what a process of succeed prints at its end.
const asOnOneHost = "as on one host"

// succeed runs a test in several processes, and fails unless each comes to its end.
func succeed(t *testing.T, test string) {
	for rank, text := range startProcesses(t, test) {
		if !strings.Contains(text, asOnOneHost) {
			t.Errorf("rank %d: got %s", rank, text)
		}
	}
}

// processSeed returns the seed that the processes of a test share.
func processSeed(t *testing.T) uint64 {
	return testutil.Get[uint64](t)(strconv.ParseUint(os.Getenv("MASTER_PORT"), 10, 64))
}

// asOne fails unless all n processes have printed one list of parameters, those of one VM at the whole batch.
func asOne(t *testing.T, n, port int, out string) {
	var got []string
	for line := range strings.Lines(out) {
		if _, list, ok := strings.Cut(line, "parameters "); ok {
			got = append(got, strings.TrimSpace(list))
		}
	}
	if len(got) != n || len(slices.Compact(slices.Clone(got))) != 1 {
		t.Fatalf("got %d lists of parameters, want %d that are equal, in %s", len(got), n, out)
	}
	var parameters [][]float64
	testutil.Do(t, json.Unmarshal([]byte(got[0]), &parameters))
	whole := newShare(t, tensor.Float64, 3*n, []int{4, 5, 2}, uint64(port))
	vm := machine(t, whole.g, OnHost(), Train(G.NewAdamSolver(), whole.learnables...))
	r := rand.New(rand.NewPCG(uint64(port), 0))
	for range 20 {
		var x, y []float64
		for range n {
			x = append(x, draw(r, tensor.Float64, 3, 4).Data().([]float64)...)
			y = append(y, draw(r, tensor.Float64, 3, 2).Data().([]float64)...)
		}
		whole.feed(t, vm, tensor.New(tensor.WithShape(3*n, 4), tensor.WithBacking(x)), tensor.New(tensor.WithShape(3*n, 2), tensor.WithBacking(y)))
		testutil.Do(t, vm.RunAll())
	}
	testutil.Do(t, vm.Pull())
	for i, p := range whole.learnables {
		if d := maxDiff(t, tensor.New(tensor.WithBacking(slices.Clone(parameters[i]))), p.Value()); !(d < 1e-9) {
			t.Errorf("%s differs by %g of one VM at the whole batch", p.Name(), d)
		}
	}
}

func TestProcesses(t *testing.T) {
	if flag.NArg() > 0 {
		asProcess(t, testutil.Get[int](t)(strconv.Atoi(flag.Arg(0))))
		return
	}
	t.Run("hosts", func(t *testing.T) { testProcesses(t, processes) })
	t.Run("gpus", func(t *testing.T) {
		list, err := Devices()
		if err == nil && len(list) < 2 {
			err = fmt.Errorf("got %d GPU, want two", len(list))
		}
		testutil.SkipUnless(t, "GPUS", err)
		t.Setenv(onGPUs, "1")
		testProcesses(t, len(list))
	})
}

func testProcesses(t *testing.T, n int) {
	together := func(t *testing.T) { // groups of processes on hosts mostly wait
		if os.Getenv(onGPUs) == "" {
			t.Parallel()
		}
	}
	size := strconv.Itoa(n)
	torch := func(r string) []string { return []string{"RANK=" + r, "WORLD_SIZE=" + size, "LOCAL_RANK=" + r} }
	for name, variables := range map[string]func(rank string) []string{
		"torchrun's variables": torch,
		"SLURM": func(r string) []string {
			return []string{"SLURM_PROCID=" + r, "SLURM_NTASKS=" + size, "SLURM_LOCALID=" + r}
		},
		"Open MPI": func(r string) []string {
			return []string{"OMPI_COMM_WORLD_RANK=" + r, "OMPI_COMM_WORLD_SIZE=" + size, "OMPI_COMM_WORLD_LOCAL_RANK=" + r}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && os.Getenv(onGPUs) == "" && name != "torchrun's variables" {
				t.Skip("SKIPPED, NOT TESTED: the same run by other variables")
			}
			together(t)
			port := freePort(t)
			asOne(t, n, port, strings.Join(startOn(t, n, port, "TestProcesses", "99", variables), "\n"))
		})
	}
	t.Run("torchrun", func(t *testing.T) {
		torchrun, err := exec.LookPath("torchrun")
		testutil.SkipUnless(t, "TORCHRUN", err)
		port := freePort(t)
		c := exec.CommandContext(t.Context(), torchrun, "--no-python", "--nproc-per-node", size, "--master-port", strconv.Itoa(port), os.Args[0], "-test.run=^TestProcesses$", "-test.count=1", "99")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		asOne(t, n, port, string(out))
	})
	for name, sign := range map[string]int{"a rank leaves": 1, "a rank hangs": -1, "a rank has another learning rate": 0} {
		t.Run(name, func(t *testing.T) {
			together(t)
			began := time.Now()
			out := startOn(t, n, freePort(t), "TestProcesses", strconv.Itoa(sign*(1+rand.IntN(9))), torch)
			for rank, text := range out {
				if rank != 1 && !strings.Contains(text, "rank 1: ") {
					t.Errorf("rank %d: got %s, want an error that names rank 1", rank, text)
				}
			}
			t.Logf("after %v: %s", time.Since(began), out[0])
		})
	}
}
