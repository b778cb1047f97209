package kernels

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Check returns an error if a plan, of this or of another module, is wrong for a device: sizes below zero, arguments of a type that no kernel takes
// or outside of the plan's operands, and, for a GPU, more blocks, threads or shared memory than a launch can have. [Check] also compares launches
// with their entry points.
func (p *Plan) Check(dev Device) error {
	if p == nil {
		return errors.New("got no plan")
	}
	if err := p.checkSizes(); err != nil {
		return err
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		if l.Kernel == nil {
			return fmt.Errorf("launch %d of the plan has no kernel", i)
		}
		if err := cmp.Or(p.checkArgs(l), l.Check(dev)); err != nil {
			return fmt.Errorf("launch %d of the plan, %s: %w", i, l.Kernel.Entry, err)
		}
	}
	return nil
}

// Check returns an error if a GPU cannot make the launch: if it has more blocks, threads or shared memory than the device allows, or arguments beyond 32 bits where
// the kernel reads 32. The host makes any launch.
func (l *Launch) Check(dev Device) error {
	if dev.Kind != GPU {
		return nil
	}
	for i, a := range l.Args {
		if n, large := a.(tooLarge); large {
			return fmt.Errorf("argument %d: got %d, want %d to %d", i, n, math.MinInt32, math.MaxInt32)
		}
	}
	return cmp.Or(l.checkExtents(0), l.checkShared(dev), l.checkCluster(dev))
}

// checkSizes returns an error if operands have no sizes.
func (p *Plan) checkSizes() error {
	for i, n := range p.Inputs {
		if n < 0 {
			return fmt.Errorf("got %d bytes of input %d, want 0 or more", n, i)
		}
	}
	if p.Out < 0 || p.Scratch < 0 {
		return fmt.Errorf("got %d bytes of output and %d of scratch memory, want 0 or more", p.Out, p.Scratch)
	}
	if whole := append(slices.Clone(p.Inputs), p.Out); p.Accessed != nil {
		if len(p.Accessed) != len(whole) {
			return fmt.Errorf("got %d sizes of what is accessed, want %d: one for each input and one for the output", len(p.Accessed), len(whole))
		}
		for i, n := range p.Accessed {
			if n < 0 || n > whole[i] {
				return fmt.Errorf("got %d bytes accessed of operand %d, want 0 to %d", n, i, whole[i])
			}
		}
	}
	if k := len(p.Parts); k > 0 && (p.Parts[0] != 0 || p.Parts[k-1] > p.Out || !slices.IsSorted(p.Parts)) {
		return fmt.Errorf("got outputs that begin at %v of %d bytes, want rising offsets from 0", p.Parts, p.Out)
	}
	return nil
}

// checkArgs returns an error if an argument is of a type that no kernel takes, or lies outside of the operands.
func (p *Plan) checkArgs(l *Launch) error {
	for i, a := range l.Args {
		var err error
		switch a := a.(type) {
		case Ref:
			err = p.checkRef(a)
		case TensorMap:
			err = p.checkTensorMap(a)
		case int32, int64, float32, float64, tooLarge:
		default:
			err = fmt.Errorf("got a %T, want a Ref, TensorMap, int32, int64, float32 or float64", a)
		}
		if err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return nil
}

// checkExtents returns an error if no GPU can have such blocks, of at most that many threads, 0 for the limit of all kernels, or that many of them.
func (l *Launch) checkExtents(most int) error {
	threads := 1
	for _, n := range l.Block {
		threads *= min(max(n, 0), 1<<20) // the product of three axes: no overflow
	}
	if most = cmp.Or(most, 1024); threads < 1 || threads > most {
		return fmt.Errorf("got blocks of %d threads, want 1 to %d", threads, most)
	}
	if l.Block[2] > 64 {
		return fmt.Errorf("got blocks of %v threads, want at most 64 along axis 2", l.Block)
	}
	for axis, most := range [3]int{1<<31 - 1, 1<<16 - 1, 1<<16 - 1} {
		if l.Grid[axis] < 1 || l.Grid[axis] > most {
			return fmt.Errorf("got a grid of %v blocks, want 1 to %d along axis %d", l.Grid, most, axis)
		}
	}
	return nil
}

// checkShared returns an error if a block cannot have that much dynamic shared memory.
func (l *Launch) checkShared(dev Device) error {
	if l.Shared < 0 || l.Shared > dev.SharedOptin {
		return fmt.Errorf("got %d bytes of shared memory, want 0 to %d, as much as a block can have on %s", l.Shared, dev.SharedOptin, dev.Name)
	}
	return nil
}

// maxCluster is the most blocks that a cluster can have on every device with clusters.
const maxCluster = 8

// checkCluster returns an error if the device cannot divide the grid into such clusters.
func (l *Launch) checkCluster(dev Device) error {
	if l.Cluster != 0 && (!dev.HasClusters() || l.Cluster < 1 || l.Cluster > maxCluster || l.Grid[0]%l.Cluster != 0 || l.Cooperative) {
		return fmt.Errorf("got clusters of %d blocks of a grid of %v on %s, want 1 to %d that divide the grid along axis 0, no cooperative launch, and a device with clusters", l.Cluster, l.Grid, dev.Name, maxCluster)
	}
	return nil
}

// checkRef returns an error unless r points into an operand of the plan, or to its end.
func (p *Plan) checkRef(r Ref) error {
	size, err := p.size(r.Operand)
	if err == nil && (r.Offset < 0 || r.Offset > size) {
		return fmt.Errorf("got offset %d of %v, which has %d bytes", r.Offset, r.Operand, size)
	}
	return err
}

// checkTensorMap returns an error unless t is a map that TMA accepts, of memory inside an operand of the plan.
func (p *Plan) checkTensorMap(t TensorMap) error {
	if err := cmp.Or(t.Check(), p.checkRef(t.Ref)); err != nil {
		return err
	}
	size, err := p.size(t.Ref.Operand)
	if err == nil && t.Bytes() > size-t.Ref.Offset {
		return fmt.Errorf("got a tensor of %d bytes at %v, which has %d bytes", t.Bytes(), t.Ref, size)
	}
	return err
}

// size returns the bytes of an operand.
func (p *Plan) size(o Operand) (int64, error) {
	switch {
	case o == Out:
		return p.Out, nil
	case o == Scratch:
		return p.Scratch, nil
	case o == Arrivals:
		return 4, nil
	case o >= 0 && int(o) < len(p.Inputs):
		return p.Inputs[o], nil
	}
	return 0, fmt.Errorf("got operand %d of a plan of %d inputs", o, len(p.Inputs))
}
