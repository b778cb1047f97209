package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
)

// SaveStore writes the parameters of a Store to a file, as [SaveParameters] writes the values of nodes. It waits for a run of a
// VM of the Store. If a number is NaN or infinite, it returns an error and leaves the file unchanged.
//
// The file has the states of [cudaops.State] too, such as the running means of package nn. It has no solver state, and no running means of a
// gorgonia.BatchNorm, which its op keeps: [Save] of the VM that trains has both.
func SaveStore(path string, s *cudaops.Store) error {
	list, err := s.Parameters()
	if err == nil && len(list) == 0 {
		err = errors.New("got a Store without parameters")
	}
	if err == nil {
		err = finite(&cudaops.Snapshot{Learnables: list})
	}
	if err == nil {
		h, content := header{Version: version}, tensors{}
		for _, l := range list {
			h.Learnables = append(h.Learnables, l.Name)
			content.add(l.Name, l.Value)
		}
		err = write(path, h, nil, content)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: SaveStore: %w", err)
	}
	return nil
}

// LoadStore sets the parameters of a Store to those in a file of [Save], [SaveParameters] or [SaveStore], or to all tensors in a
// file of another program, a folder or an index of shards, and adds those that the Store does not have, unless [Partial] is
// set. It ignores solver state, and running means of a gorgonia.BatchNorm. A file without a tensor to load is an error, unless Partial is set. If a tensor has
// another shape than the parameter of its name, nothing changes. Parameters of which the file has no tensor keep their values.
//
// A file of another program without a parameter that an open VM of the Store computes with is an error, unless Partial is set. Before the first VM a Store takes any names; that a model
// finds its parameters there is checked where its graph is built: see Loaded and Evaluation of package nn.
//
// Elements are converted to the parameter's type. A new parameter has the type of the tensor, and float32 for F16 and BF16. An open VM
// of the Store that has an input of int keeps it: I64 is converted. [Rename] can omit tensors.
func LoadStore(path string, s *cudaops.Store, opts ...LoadOption) (Loaded, error) {
	loaded, err := loadStore(path, s, opts)
	if err != nil {
		return Loaded{}, fmt.Errorf("checkpoint: LoadStore: %w", err)
	}
	return loaded, nil
}

func loadStore(path string, s *cudaops.Store, opts []LoadOption) (loaded Loaded, err error) {
	l, err := newLoading(opts)
	if err != nil {
		return loaded, err
	}
	types, err := s.Types()
	if err != nil {
		return loaded, err
	}
	f, err := open(path)
	if err != nil {
		return loaded, err
	}
	defer f.Close()
	list, loaded, err := f.stored(types, l)
	if err == nil && len(list) == 0 && !l.partial {
		err = fmt.Errorf("got %d tensors and none to load, want one at least: Rename omits those that it renames to nothing", len(f.Tensors))
	}
	if err == nil {
		err = s.SetParameters(list)
	}
	if err != nil {
		return loaded, fmt.Errorf("%s: %w", path, err)
	}
	return loaded, nil
}

// stored returns the tensors for a Store with parameters of these types.
func (f *file) stored(types []cudaops.ParameterType, l loading) (list []cudaops.Learnable, loaded Loaded, err error) {
	tensors, err := l.find(f, f.notParameters())
	if err != nil {
		return nil, loaded, err
	}
	var missing, unused, added []string
	of := map[string]kernels.Dtype{}
	for _, t := range types {
		of[t.Name], _ = values.Dtype(t.Dtype)
		if (l.partial || f.header == nil && t.Used) && !slices.ContainsFunc(tensors, func(f found) bool { return f.as == t.Name }) {
			missing = append(missing, t.Name)
		}
	}
	for _, t := range tensors {
		dt, has := of[t.as]
		if !has && l.partial {
			unused = append(unused, t.Name)
			continue
		}
		if !has {
			added = append(added, t.Name)
			switch t.Dtype {
			case "F64":
				dt = kernels.Float64
			case "F32", "F16", "BF16":
				dt = kernels.Float32
			case "I64":
				dt = kernels.Int64
			case "I32":
				dt = kernels.Int32
			case "U8":
				dt = kernels.Uint8
			case "BOOL":
				dt = kernels.Bool
			default:
				return nil, loaded, fmt.Errorf("tensor %q: got elements of %s for a new parameter, want F64, F32, F16, BF16, I64, I32, U8 or BOOL", t.Name, t.Dtype)
			}
		}
		v, err := read(t.Tensor, dt, l.transposes(t.as))
		if err != nil {
			return nil, loaded, err
		}
		list = append(list, cudaops.Learnable{Name: t.as, Value: v})
	}
	if len(missing) > 0 && !l.partial {
		unused = added // names that may be meant
	}
	loaded, err = l.end(f, missing, unused)
	return list, loaded, err
}

// notParameters returns the names of the tensors of a file of Stheno that are no parameters.
func (f *file) notParameters() map[string]bool {
	names := f.solverState()
	if f.header != nil {
		for i := range f.header.BatchNorms {
			names[averageName(i, "mean")], names[averageName(i, "variance")] = true, true
		}
	}
	return names
}
