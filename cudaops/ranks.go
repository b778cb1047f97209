package cudaops

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/cudaops/internal/world"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// OnDevices runs the graph on several CUDA devices of one kind, each a rank in the order of the list, by NVIDIA's NCCL. The graph is one
// rank's share of the work: its batch is the batch of a rank. [Split] names the inputs that hold a batch; a run takes n times as many
// rows for these, and the same value on all n ranks for other inputs.
//
// With [Train] the gradients of the learnables, and the cost of [gorgonia.Grad] that a run returns, are averaged over the ranks before
// the step, so that all ranks make the same step: learnables and moments are equal bit for bit. If the cost is a mean over the batch,
// the step is that of one VM at n times the batch, up to rounding. Other results, also the running mean and
// variance of a [gorgonia.BatchNormOp], are those of the first rank: each rank's batch norm uses the statistics of that rank's rows. Random
// numbers differ among ranks.
//
// NCCL is loaded from the system or from a Python wheel: see docs/several-gpus.md, which also says what has been tested. Solvers of other modules are
// errors on several ranks.
func OnDevices(list ...int) Option {
	return func(c *config) {
		OnDevice(0)(c)
		c.onRanks = (*VM).onRanks
		if c.devices, c.ranks = slices.Clone(list), len(list); len(list) == 0 {
			c.ranks = -1
		}
	}
}

// AllDevices is [OnDevices] with all CUDA devices of the machine.
func AllDevices() Option {
	return func(c *config) {
		OnDevice(0)(c)
		c.allDevices, c.onRanks = true, (*VM).onRanks
	}
}

// OnHosts runs the graph on n ranks in this process, each as [OnHost] does: [OnDevices] without GPUs, for tests.
func OnHosts(n int) Option {
	return func(c *config) {
		OnHost()(c)
		if c.ranks, c.onRanks = n, (*VM).onRanks; n < 1 {
			c.ranks = -1
		}
	}
}

// Processes makes this process one rank of as many as there are processes, on the CUDA device of its number on the machine or, with
// [OnHost], on the host. Each process makes the VM of the same graph with the same options, gives its own rows to the inputs of [Split],
// as many as the node's shape has, and runs as often as the others. What [OnDevices] says of ranks holds for processes. Values of
// learnables and of [Resident] inputs are those of rank 0, whenever a VM copies them to the device.
//
// Ranks are those of the variables RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them, or else those
// of SLURM or Open MPI. NewVM waits for all processes: see [RankTimeout]. Kernels are chosen by the calibration of rank 0, if it has one.
func Processes() Option {
	return func(c *config) { c.join, c.onRanks = joinWorld, (*VM).process }
}

// RankTimeout sets the time that ranks of [Processes], and GPUs, wait for each other, when they start and in each collective: 10 minutes
// without it. A process that has ended is noticed at once. When another does not take part in time, all others end the run with an error that
// names it, within twice the time.
func RankTimeout(limit time.Duration) Option {
	return func(c *config) { c.rankTimeout = append(c.rankTimeout, limit) }
}

// rankLimit returns the time of RankTimeout.
func (c *config) rankLimit() time.Duration { return one(c.rankTimeout, 10*time.Minute) }

// Process returns the number of this process's first rank, and the number of all ranks: 0 and [VM.Ranks] without [Processes].
func (vm *VM) Process() (rank, all int) {
	if vm == nil {
		return 0, 1
	}
	if w := vm.config.world; w != nil {
		rank = w.Rank
	}
	return rank, vm.config.total()
}

// Share returns the bytes that the process of rank 0 passes, on all processes of [Processes], between runs. It is a call of all. Without Processes
// it returns b.
func (vm *VM) Share(b []byte) (shared []byte, err error) {
	err = vm.between("Share", func() error { shared, err = vm.exec.Share(b); return err })
	return shared, err
}

// Split names inputs of which each rank of [OnDevices] has values of its own: a run takes the rows of all ranks, concatenated along the
// first axis, and hands each rank as many as the node's shape has. [VM.Let] binds them. A run
// sets no gradient of such an input. On one device Split changes nothing.
func Split(inputs ...*gorgonia.Node) Option {
	return func(c *config) { c.split = append(c.split, inputs...) }
}

// SumRanks adds the gradients and the cost of the ranks instead of averaging them, for costs that are sums over the batch.
func SumRanks() Option { return func(c *config) { c.sumRanks = true } }

// GradientsIn rounds the gradients of float32 learnables to p, BF16 or F16, before they travel between ranks, with half the bytes. Each rank
// rounds its gradients to nearest even, and the sums or means of the ranks' gradients are rounded again. The host adds in float32 and rounds once; NCCL
// adds two numbers at a time in float32 and rounds each sum, so that of two ranks is the host's. Moments, accumulated gradients ([StepEvery]),
// [ClipNorm] and the step compute in float32 with what arrives. Gradients in F16 overflow from 65520 on: train with [LossScaling].
//
// Without GradientsIn gradients travel in the learnables' type, also under [Mixed]. On one rank it changes nothing.
func GradientsIn(p kernels.Precision) Option {
	return func(c *config) { c.reduced = append(c.reduced, p) }
}

// ShardSolver divides the solver's state of [Train] among the ranks: each of n has 1/n of the moments, of the averages of [EMA] and of the sum
// of gradients of [StepEvery], and makes the step of as many of the learnables' elements (ZeRO-1). The gradients are reduced to the rank
// that needs them, and then the learnables are gathered on all ranks, so as many bytes travel as without. Learnables have the bits that
// they have without ShardSolver where the ranks' sums have one order, as on the host. Under [ClipNorm], and for gorgonia.BarzilaiBorweinSolver, they differ by rounding,
// because the sums over all learnables are sums of the ranks' sums.
//
// Snapshots and checkpoints are those of one device. Of several processes [VM.Snapshot] and [VM.EMA] are calls of all. On one rank ShardSolver changes nothing.
func ShardSolver() Option { return func(c *config) { c.sharded = true } }

// Ranks returns the number of ranks of this process that run the graph, 1 for a VM without [OnDevices] or [OnHosts], and the inputs of [Split].
func (vm *VM) Ranks() (n int, split gorgonia.Nodes) {
	if vm == nil {
		return 1, nil
	}
	return vm.config.ranksOrOne(), slices.Clone(gorgonia.Nodes(vm.config.split))
}

// RunShape returns the shape of the values that a run takes for an input: the node's or, of an input of [Split], with the rows of all ranks
// of this process.
func (vm *VM) RunShape(n *gorgonia.Node) tensor.Shape {
	if n == nil {
		return nil
	}
	if vm == nil || !slices.Contains(vm.config.split, n) {
		return n.Shape()
	}
	return vm.config.ofRanks(n.Shape())
}

// ofRanks returns the shape of the values of all ranks of this process, concatenated along the first axis.
func (c *config) ofRanks(shape tensor.Shape) tensor.Shape {
	shape = shape.Clone()
	if len(shape) > 0 {
		shape[0] *= c.ranksOrOne()
	}
	return shape
}

// rankSeed is the difference between the seeds of random numbers of consecutive ranks: odd, with bits everywhere (2^64 / golden ratio).
const rankSeed = 0x9e3779b97f4a7c15

// total returns the number of ranks of all processes.
func (c *config) total() int {
	if c.world != nil {
		return c.world.Size
	}
	return c.ranksOrOne()
}

// ranksOrOne returns the number of ranks of this process.
func (c *config) ranksOrOne() int { return max(c.ranks, 1) }

// collectiveSMs is the number of SMs that launches leave to collectives. Blocks of a product with shared tiles take every other SM until it ends, and
// NCCL's blocks wait for them. A step of the perceptron of TestRankTimes in float32 on two GPUs, ms:
//
//	        none   4 SMs
//	H100    4.96    4.67
//	H200    4.79    4.61
//
// Steps in TF32, and of GPT-2 in BF16, take as long with 4 as with none.
const collectiveSMs = 4

// beside returns the device without the SMs that launches leave to collectives.
func (c *config) beside(d kernels.Device) kernels.Device {
	if d.Kind == kernels.GPU && c.total() > 1 && d.SMs > 2*collectiveSMs {
		d.SMs -= collectiveSMs
	}
	return d
}

// checkRanks returns an error for options that several ranks do not support.
func (c *config) checkRanks() error {
	switch {
	case c.ranks < 0:
		return errors.New("OnDevices or OnHosts got no ranks, want at least one")
	case len(c.rankTimeout) > 1 || c.rankLimit() <= 0:
		return fmt.Errorf("RankTimeout got %v, want a single time above 0", c.rankTimeout)
	}
	return nil
}

// rankMemory returns the ranks of a VM in words, "" for one, and a function that allocates memory on all of this process, as b does on the first.
func (c *config) rankMemory(b exec.Backend) (ranks string, alloc func(bytes int64) (program.Memory, error), err error) {
	switch {
	case c.total() < 2:
		return "", b.NewMemory, nil
	case c.world != nil:
		return fmt.Sprintf("%d processes", c.total()), b.NewMemory, nil
	}
	each := []func(bytes int64) (program.Memory, error){b.NewMemory}
	for r := 1; r < c.ranks; r++ {
		own := new(exec.HostBackend).NewMemory
		if b.Device().Kind == kernels.GPU {
			if own, err = exec.DeviceMemory(c.devices[r]); err != nil {
				return "", nil, err
			}
		}
		each = append(each, own)
	}
	ranks = fmt.Sprintf("%d ranks", c.ranks)
	if len(c.devices) > 0 {
		ranks += fmt.Sprintf(" on the devices %v", c.devices)
	}
	return ranks, func(bytes int64) (program.Memory, error) { return exec.NewRankMemory(bytes, each) }, nil
}

// shareParameters sets the parameters of a Store to those of rank 0, if there are several processes.
func (vm *VM) shareParameters(p *parameters) error {
	if vm.config.world == nil {
		return nil
	}
	for i, v := range p.values {
		m := make([]byte, v.Bytes())
		err := p.exec.State(v, m)
		if err == nil {
			err = p.exec.SetState(v, m)
		}
		if err != nil {
			return fmt.Errorf("In: node %s: %w", internal.Name(p.nodes[i]), err)
		}
		clear(p.held[i].rounded) // another process may have had other values
	}
	return nil
}

// findDevices sets the devices of AllDevices, and checks those of OnDevices.
func (c *config) findDevices() error {
	if c.join != nil {
		if c.ranks != 0 || c.allDevices {
			return errors.New("got the options Processes and OnDevices, AllDevices or OnHosts, want one of them: a process is one rank")
		}
		w, err := world.Find(os.Getenv)
		if err != nil {
			return fmt.Errorf("Processes: %w", err)
		}
		c.world, c.device = &w, w.Local
	}
	if c.allDevices {
		n, err := driver.Count()
		if err != nil {
			return err
		}
		for i := range n {
			c.devices = append(c.devices, i)
		}
		c.ranks = n
	}
	for i, d := range c.devices {
		if slices.Contains(c.devices[:i], d) {
			return fmt.Errorf("OnDevices: got device %d twice, want it once", d)
		}
	}
	if len(c.devices) > 0 {
		c.device = c.devices[0]
	}
	return c.checkRanks()
}

// letRows binds the rows of all ranks to an input, a value of the shape that they have together.
func (vm *VM) letRows(n *gorgonia.Node, v gorgonia.Value, want tensor.Shape) error {
	if dt, _ := internal.ElementType(n); v.Dtype() != dt || !v.Shape().Eq(want) {
		return fmt.Errorf("got %v of shape %v, want %v of shape %v, the rows of %d ranks", v.Dtype(), v.Shape(), dt, want, vm.config.ranks)
	}
	return internal.Bind(n, v)
}

// join connects the processes; it returns nil if this is the only one. Plans are then made by the calibration of rank 0, on all ranks.
func (vm *VM) join(b exec.Backend) (*world.Peers, error) {
	c := b.Device().Calibration
	vm.uncalibrated = ""
	if g, ok := b.(interface{ Uncalibrated() error }); ok {
		if err := g.Uncalibrated(); err != nil {
			vm.uncalibrated = err.Error()
		}
	}
	var peers *world.Peers
	if w := vm.config.world; w != nil && w.Size > 1 {
		var err error
		if peers, c, err = vm.config.join(*w, vm.config.rankLimit(), c); err != nil {
			return nil, err
		}
		if w.Rank > 0 { // which does not use its file
			vm.uncalibrated = ""
		}
	}
	vm.target.Device.Calibration, vm.calibration = c, c.Name()
	return peers, nil
}

// joinWorld connects a process to the others, and returns the calibration of rank 0. Only Processes names it, so that programs without the option have no networking
// in them, 0.4 MB.
func joinWorld(w world.World, limit time.Duration, own kernels.Calibration) (*world.Peers, kernels.Calibration, error) {
	peers, err := world.Join(w, limit)
	if err != nil {
		return nil, own, err
	}
	first, err := calibrationOfFirst(peers, own)
	if err != nil {
		peers.Close()
		return nil, own, err
	}
	return peers, first, nil
}

// calibrationOfFirst returns the calibration that rank 0 passes.
func calibrationOfFirst(peers *world.Peers, own kernels.Calibration) (first kernels.Calibration, err error) {
	in, err := binary.Append(nil, binary.LittleEndian, own)
	if err != nil {
		return first, err
	}
	out := make([]byte, len(in))
	if err = peers.Exchange(kernels.Collective{Kind: kernels.Broadcast, Ranks: peers.Size}, kernels.Uint8, in, out); err == nil {
		_, err = binary.Decode(out, binary.LittleEndian, &first)
	}
	return first, err
}

// executable makes a program ready to run on a backend, or on ranks of which it is the first, or on that of this process among peers.
func (vm *VM) executable(p *program.Program, b exec.Backend, peers *world.Peers) (*exec.Executable, error) {
	timed := vm.config.timed || vm.tracer != nil
	if vm.config.total() < 2 {
		return exec.New(p, b, timed)
	}
	if err := exec.Open(b); err != nil {
		return nil, err
	}
	return vm.config.onRanks(vm, p, b, peers, timed)
}

// onRanks makes a program ready to run on the ranks of this process, of which a backend is the first. Only options name it, so that other programs link no collectives.
func (vm *VM) onRanks(p *program.Program, b exec.Backend, _ *world.Peers, timed bool) (*exec.Executable, error) {
	backends := []exec.Backend{b}
	if host, ok := b.(*exec.HostBackend); ok {
		meeting, ranks := exec.NewMeeting(vm.config.ranks)
		host.Ranks = ranks[0]
		for r := 1; r < len(ranks); r++ {
			backends = append(backends, &exec.HostBackend{BLAS: host.BLAS, Ranks: ranks[r], Rank: r})
		}
		return exec.NewRanks(p, meeting, backends, timed)
	}
	gpus := []*exec.GPUBackend{b.(*exec.GPUBackend)}
	meeting, err := func() (*exec.Meeting, error) {
		for _, i := range vm.config.devices[1:] {
			g, err := exec.OpenGPU(i)
			if err != nil {
				return nil, err
			}
			gpus, backends = append(gpus, g), append(backends, g)
		}
		return exec.JoinGPUs(gpus, vm.config.rankLimit())
	}()
	if err != nil {
		for _, g := range gpus[1:] {
			err = driver.Join(err, g.Close())
		}
		return nil, err
	}
	return exec.NewRanks(p, meeting, backends, timed)
}

// process makes a program ready to run as the rank of this process.
func (vm *VM) process(p *program.Program, b exec.Backend, peers *world.Peers, timed bool) (e *exec.Executable, err error) {
	w := *vm.config.world
	if err := peers.Agree(fmt.Sprint(b.Name(), p, vm.trainer.numbers())); err != nil {
		return nil, err
	}
	leave := peers.Close
	if host, ok := b.(*exec.HostBackend); ok {
		host.Ranks, host.Rank = peers, w.Rank
	} else {
		gpu := b.(*exec.GPUBackend)
		leave = func() {
			gpu.AbortRanks()
			peers.Close()
		}
		err = exec.JoinProcess(gpu, peers, w.Rank, w.Size, vm.config.rankLimit())
	}
	if err == nil {
		e, err = exec.NewRanks(p, exec.NewProcess(w.Rank, w.Size, peers, leave), []exec.Backend{b}, timed)
	}
	if err != nil {
		leave()
	}
	return e, err
}
