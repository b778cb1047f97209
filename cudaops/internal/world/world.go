// Package world connects the processes of a program that several processes run, one rank each: which rank this is, from the environment
// that the program that started them has set, and TCP connections from rank 0 to all others.
package world

import (
	"fmt"
	"net"
	"strconv"
)

// World is the processes, and this one's place among them.
type World struct {
	Rank, Size int
	Local      int    // the rank among the processes of this machine
	Address    string // where rank 0 listens
}

// starters are the programs that start processes, with the variables of a rank, the number of ranks, the rank on the machine and the
// number of ranks on the machine: of SLURM "2", or "2(x3)" on several machines.
var starters = []struct{ name, rank, size, local, here string }{
	{"torchrun or stheno launch", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
}

// Find reads the world from environment variables. Without MASTER_ADDR all processes must be on this machine.
func Find(getenv func(string) string) (w World, err error) {
	for _, s := range starters {
		if getenv(s.rank) == "" {
			continue
		}
		number := func(name string) int {
			n, bad := strconv.Atoi(getenv(name))
			if bad != nil && err == nil {
				err = fmt.Errorf("%s=%q, want a number as %s sets it", name, getenv(name), s.name)
			}
			return n
		}
		w = World{Rank: number(s.rank), Size: number(s.size), Local: number(s.local)}
		if err != nil {
			return w, err
		}
		if w.Rank < 0 || w.Rank >= w.Size || w.Local < 0 {
			return w, fmt.Errorf("%s=%d, %s=%d, %s=%d: want ranks from 0 on, below the number of processes", s.rank, w.Rank, s.size, w.Size, s.local, w.Local)
		}
		host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT")
		if host == "" {
			if here := getenv(s.here); here != strconv.Itoa(w.Size) {
				return w, fmt.Errorf("MASTER_ADDR is not set and %s=%q of %d processes: want the address of rank 0's machine in MASTER_ADDR", s.here, here, w.Size)
			}
			host = "127.0.0.1"
		}
		if port == "" {
			port = "29500" // torchrun's
		}
		if n, err := strconv.Atoi(port); err == nil && getenv("TORCHELASTIC_USE_AGENT_STORE") == "True" { // torchrun itself listens on MASTER_PORT
			port = strconv.Itoa(n + 1)
		}
		w.Address = net.JoinHostPort(host, port)
		return w, nil
	}
	return w, fmt.Errorf("want the program started by torchrun, stheno launch, SLURM or Open MPI: got none of the variables %s, %s and %s", starters[0].rank, starters[1].rank, starters[2].rank)
}
