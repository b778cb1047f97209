package checkpoint

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
)

// SaveStore writes the parameters of a Store to a file, as [SaveParameters] writes the values of nodes. It waits for a run of a
// VM of the Store. If a number is NaN or infinite, it returns an error and leaves the file unchanged.
//
// The file has no solver state and no running means: [Save] of the VM that trains has both.
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
// file of another program, and adds those that the Store does not have. It ignores solver state and running means. The note is
// as in [Load]. If a tensor has another type or shape than the parameter of its name, nothing changes.
func LoadStore(path string, s *cudaops.Store) (note string, err error) {
	if note, err = loadStore(path, s); err != nil {
		return "", fmt.Errorf("checkpoint: LoadStore: %w", err)
	}
	return note, nil
}

func loadStore(path string, s *cudaops.Store) (note string, err error) {
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var names []string
	if f.header != nil {
		names = f.header.Learnables
	} else {
		for _, t := range f.Tensors {
			names = append(names, t.Name)
		}
	}
	var list []cudaops.Learnable
	for _, name := range names {
		list = append(list, cudaops.Learnable{Name: name, Value: f.value(name)})
	}
	if err = f.err; err == nil {
		err = s.SetParameters(list)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return f.note, nil
}
