package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
)

// openFor opens a file for a VM. On several processes it is that of rank 0, so that all continue from one state.
func openFor(vm *cudaops.VM, path string) (*file, error) {
	ranks, _ := vm.Ranks()
	rank, all := vm.Process()
	if ranks == all {
		if err := checkFile(path); err != nil {
			return nil, err
		}
		return open(path)
	}
	var content []byte
	var of outcome
	if rank == 0 {
		err := checkFile(path)
		if err == nil {
			content, err = os.ReadFile(path)
		}
		if err != nil {
			of = outcome{errors.Is(err, fs.ErrNotExist), err.Error()}
		}
	}
	head, err := json.Marshal(of)
	if err == nil {
		head, err = vm.Share(head)
	}
	if err == nil {
		err = json.Unmarshal(head, &of)
	}
	switch {
	case err != nil:
		return nil, err
	case of.Missing:
		return nil, fmt.Errorf("rank 0: %s: %w", path, fs.ErrNotExist)
	case of.Fault != "":
		return nil, fmt.Errorf("rank 0: %s", of.Fault)
	}
	if content, err = vm.Share(content); err != nil {
		return nil, err
	}
	whole, err := safetensors.New(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := newFile(whole)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// outcome says why rank 0 has no content of a file.
type outcome struct {
	Missing bool
	Fault   string
}

// checkFile returns an error unless the path is a regular file.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return wantFile(path, info)
}
