package exec

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/nccl"
	"github.com/stheno-ml/stheno/kernels"
)

// JoinGPUs makes GPUs of one kind the ranks of an NCCL communicator, in their order. Every rank closes its own part. limit is the time to
// wait for collectives.
func JoinGPUs(gpus []*GPUBackend, limit time.Duration) (*Meeting, error) {
	for i, g := range gpus {
		if g.Name() != gpus[0].Name() {
			return nil, fmt.Errorf("rank %d is a %s, rank 0 a %s: want GPUs of one kind", i, g.Name(), gpus[0].Name())
		}
	}
	lib, err := nccl.Load()
	if err != nil {
		return nil, err
	}
	id, err := lib.NewID()
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(gpus))
	var wait sync.WaitGroup
	for r, g := range gpus {
		wait.Go(func() { errs[r] = g.joinRanks(lib, id, len(gpus), r) })
	}
	wait.Wait()
	m, _ := NewMeeting(len(gpus))
	m.abort = func() {
		for _, g := range gpus {
			g.AbortRanks()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for r, g := range gpus {
		g.rank = r
		g.watchRanks(nil, limit, len(gpus))
	}
	return m, nil
}

// JoinProcess makes a GPU the rank of this process in an NCCL communicator of size processes. limit is the time to wait for collectives.
func JoinProcess(g *GPUBackend, peers Peers, rank, size int, limit time.Duration) error {
	lib, err := nccl.Load()
	if err != nil {
		return err
	}
	var id, all nccl.ID
	if rank == 0 {
		if id, err = lib.NewID(); err != nil {
			return err
		}
	}
	if err := peers.Exchange(kernels.Collective{Kind: kernels.Broadcast, Ranks: size}, kernels.Uint8, id.Bytes[:], all.Bytes[:]); err != nil {
		return err
	}
	if err := g.joinRanks(lib, all, size, rank); err != nil {
		return err
	}
	g.watchRanks(peers, limit, size)
	return nil
}

// AbortRanks ends the GPU's collectives with other ranks, for good.
func (g *GPUBackend) AbortRanks() {
	if g.comm != nil {
		g.comm.Abort()
	}
}

// joinRanks makes the GPU a rank. It reduces one number, because NCCL connects the ranks in the first collective, which must not be
// captured.
func (g *GPUBackend) joinRanks(lib *nccl.Library, id nccl.ID, ranks, rank int) error {
	number, err := g.ctx.Alloc(4)
	if err == nil {
		err = g.ctx.Memset8(number, 0, 4)
	}
	if err == nil {
		err = g.ctx.Current(func() (err error) {
			if g.comm, err = lib.Join(id, ranks, rank); err != nil {
				return err
			}
			return g.comm.AllReduce(uintptr(number), uintptr(number), 1, kernels.Float32, nccl.Sum, g.stream.Handle())
		})
	}
	if err = driver.Join(err, g.stream.Sync(), g.ctx.Free(number)); err != nil {
		return fmt.Errorf("rank %d, %s: %w", rank, g.Name(), err)
	}
	return nil
}

// leaveRanks closes the GPU's part of the communicator. The graphs with its collectives must have been closed.
func (g *GPUBackend) leaveRanks() error {
	if g.comm == nil {
		return nil
	}
	return g.ctx.Current(g.comm.Close)
}

// Collective implements Backend. The values of all inputs travel in one operation of NCCL.
func (g *GPUBackend) Collective(c kernels.Collective, d []kernels.Dtype, in, out []Span) (func() error, error) {
	if g.comm == nil {
		return nil, fmt.Errorf("%v: got a GPU without other ranks", c)
	}
	op := nccl.Sum
	if c.Mean {
		op = nccl.Mean
	}
	queue := func() error {
		for i, s := range in {
			if c.Kind == kernels.OwnPart {
				if err := g.stream.Copy(g.address(out[i]), g.address(s)+driver.Ptr(int64(g.comm.Rank())*out[i].Size), out[i].Size); err != nil {
					return err
				}
				continue
			}
			from, to, stream := uintptr(g.address(s)), uintptr(g.address(out[i])), g.stream.Handle()
			sent, received := s.Size/d[i].Size(), out[i].Size/d[i].Size()
			var err error
			switch c.Kind {
			case kernels.AllReduce:
				err = g.comm.AllReduce(from, to, sent, d[i], op, stream)
			case kernels.Reduce:
				err = g.comm.Reduce(from, to, sent, d[i], op, c.Root, stream)
			case kernels.Broadcast:
				err = g.comm.Broadcast(from, to, sent, d[i], c.Root, stream)
			case kernels.AllGather:
				err = g.comm.AllGather(from, to, sent, d[i], stream)
			case kernels.ReduceScatter:
				err = g.comm.ReduceScatter(from, to, received, d[i], op, stream)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return func() error {
		if c.Kind == kernels.Reduce { // NCCL writes on the root alone
			for _, s := range out {
				if err := g.stream.Clear(g.address(s), s.Size); err != nil {
					return err
				}
			}
		}
		return g.ctx.Current(func() error { return g.comm.Group(queue) })
	}, nil
}
