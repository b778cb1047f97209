package world

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// The variables of each starter give the rank; what is missing is named.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		env, want string
	}{
		{"RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=77", "{1 4 1 10.0.0.1:77}"},
		{"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=0 MASTER_ADDR=::1", "{3 4 0 [::1]:29500}"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2", "{0 2 0 127.0.0.1:29500}"},
		{"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=a SLURM_PROCID=5", "{0 1 0 a:29500}"},
		{"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=7 TORCHELASTIC_USE_AGENT_STORE=True", "{0 1 0 a:8}"},
		{"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2", "{1 2 1 127.0.0.1:29500}"},
		{"", "want the program started by torchrun, stheno launch, SLURM or Open MPI"},
		{"RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", "RANK=2, WORLD_SIZE=2, LOCAL_RANK=0: want ranks from 0 on"},
		{"RANK=0 WORLD_SIZE=x LOCAL_RANK=0", `WORLD_SIZE="x", want a number as torchrun or stheno launch sets it`},
		{"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2(x2)", `MASTER_ADDR is not set`},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		w, err := Find(func(name string) string { return env[name] })
		if got := fmt.Sprint(w); err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want %s", c.env, got, err, c.want)
		}
	}
}

// free returns a free address of this machine.
func free(t *testing.T) string {
	l := testutil.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// joined returns n ranks that have joined, started in any order, with strangers among them.
func joined(t *testing.T, n int, limit time.Duration) []*Peers {
	t.Helper()
	at, peers, errs := free(t), make([]*Peers, n), make([]error, n)
	var wait sync.WaitGroup
	for r := range n {
		wait.Go(func() { peers[r], errs[r] = Join(World{Rank: r, Size: n, Address: at}, limit) })
	}
	for range 3 {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Write([]byte("GET / HTTP/1.1\r\nHost: there\r\n\r\n"))
			defer c.Close()
		}
	}
	wait.Wait()
	for _, err := range errs {
		testutil.Do(t, err)
	}
	if n > 1 {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			t.Errorf("rank 0 still listens when all have joined")
		}
	}
	t.Cleanup(func() {
		for _, p := range peers {
			p.Close()
		}
	})
	return peers
}

// exchange calls Exchange on all ranks for which out is not nil.
func exchange(peers []*Peers, c kernels.Collective, in, out [][]byte) []error {
	errs := make([]error, len(peers))
	var wait sync.WaitGroup
	for r, p := range peers {
		if out[r] != nil {
			wait.Go(func() { errs[r] = p.Exchange(c, kernels.Float32, in[r], out[r]) })
		}
	}
	wait.Wait()
	return errs
}

// Results are those of the collective in one process.
func TestExchange(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		peers := joined(t, n, 10*time.Second)
		for kind := range kernels.ReduceScatter + 1 {
			c := kernels.Collective{Kind: kind, Ranks: n, Root: n - 1}
			elements := 8 * n
			switch kind {
			case kernels.AllGather:
				elements *= n
			case kernels.ReduceScatter:
				elements /= n
			}
			in, out, want := make([][]byte, n), make([][]byte, n), make([][]byte, n)
			for r := range n {
				x := make([]float32, 8*n)
				for i := range x {
					x[i] = float32(i*(r+1)) / 3
				}
				in[r] = kernels.Bytes(x)
				out[r], want[r] = kernels.Bytes(make([]float32, elements)), kernels.Bytes(make([]float32, elements))
			}
			c.Run(kernels.Float32, in, want)
			for _, err := range exchange(peers, c, in, out) {
				testutil.Do(t, err)
			}
			if !slices.EqualFunc(out, want, bytes.Equal) {
				t.Errorf("%v: got %v, want %v", c, out, want)
			}
		}
	}
}

// Ranks that are in no exchange learn which rank has left, also those that rank 0 tells, and what they have not read yet is kept.
func TestCheck(t *testing.T) {
	peers := joined(t, 4, 10*time.Second)
	x := make([]byte, 8)
	c := kernels.Collective{Kind: kernels.AllReduce, Ranks: 4}
	sent := make(chan error)
	go func() { sent <- peers[2].Exchange(c, kernels.Float32, x, make([]byte, 8)) }()
	time.Sleep(50 * time.Millisecond) // rank 2 is ahead of the others
	for _, r := range []int{0, 1, 3} {
		testutil.Do(t, peers[r].Check())
	}
	for _, err := range exchange(peers, c, [][]byte{x, x, nil, x}, [][]byte{make([]byte, 8), make([]byte, 8), nil, make([]byte, 8)}) {
		testutil.Do(t, err)
	}
	testutil.Do(t, <-sent)
	peers[3].Close()
	for r := range 3 {
		err, until := error(nil), time.Now().Add(10*time.Second)
		for err == nil && time.Now().Before(until) {
			err = peers[r].Check()
		}
		if err == nil || !strings.Contains(err.Error(), "rank 3: the process has ended or left the others") {
			t.Errorf("rank %d: got error %v, want one that names rank 3", r, err)
		}
		if again := peers[r].Exchange(c, kernels.Float32, x, x); again != err {
			t.Errorf("rank %d: got error %v in the next exchange, want %v", r, again, err)
		}
	}
}

// All ranks learn which one has another text than rank 0.
func TestAgree(t *testing.T) {
	for name, want := range map[string]error{"same": nil, "other": errors.New("rank 2: got another graph")} {
		peers, errs := joined(t, 4, 10*time.Second), make([]error, 4)
		var wait sync.WaitGroup
		for r, p := range peers {
			text := "same"
			if r == 2 {
				text = name
			}
			wait.Go(func() { errs[r] = p.Agree(text) })
		}
		wait.Wait()
		for r, err := range errs {
			if (err == nil) != (want == nil) || err != nil && !strings.Contains(err.Error(), want.Error()) {
				t.Errorf("%s, rank %d: got error %v, want %v", name, r, err, want)
			}
		}
	}
}

// A rank that has left, that hangs or that asks for another collective is named in the errors of the others, within the time limit.
func TestExchangeFails(t *testing.T) {
	c, x := kernels.Collective{Kind: kernels.AllReduce, Ranks: 3}, make([]byte, 8)
	for name, fault := range map[string]func(peers []*Peers, in, out [][]byte){
		"left":  func(peers []*Peers, in, out [][]byte) { peers[2].Close(); out[2] = nil },
		"hangs": func(peers []*Peers, in, out [][]byte) { out[2] = nil },
		"other": func(peers []*Peers, in, out [][]byte) { in[2], out[2] = make([]byte, 16), make([]byte, 16) },
	} {
		peers := joined(t, 3, 500*time.Millisecond)
		in, out := [][]byte{x, x, x}, [][]byte{make([]byte, 8), make([]byte, 8), make([]byte, 8)}
		fault(peers, in, out)
		errs := exchange(peers, c, in, out)
		for r := range 2 {
			if errs[r] == nil || !strings.Contains(errs[r].Error(), "rank 2: ") {
				t.Errorf("%s, rank %d: got error %v, want one that names rank 2", name, r, errs[r])
			}
		}
	}
	if _, err := Join(World{Rank: 0, Size: 2, Address: free(t)}, 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), "no hello of the ranks [1] within 200ms") {
		t.Errorf("a rank that does not come: got error %v", err)
	}
	if _, err := Join(World{Rank: 1, Size: 2, Address: free(t)}, 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), "rank 1 of 2, rank 0 at 127.0.0.1") {
		t.Errorf("rank 0 does not come: got error %v", err)
	}
}
