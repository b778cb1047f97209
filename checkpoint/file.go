package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/stheno-ml/stheno/internal/safetensors"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// dtypes are the format's names of element types.
var dtypes = map[kernels.Dtype]string{kernels.Float32: "F32", kernels.Float64: "F64"}

// tensors is the content of a new file.
type tensors struct {
	list []safetensors.Tensor
	err  error // the first error
}

// add adds a tensor.
func (t *tensors) add(name string, v gorgonia.Value) {
	m, err := values.Bytes(v)
	if err == nil {
		dt, _ := values.Dtype(v.Dtype())
		if dtypes[dt] == "" {
			err = fmt.Errorf("got %v, want float32 or float64", v.Dtype())
		}
		t.list = append(t.list, safetensors.Tensor{Name: name, Dtype: dtypes[dt], Shape: v.Shape(), Data: littleEndian(m, dt.Size())})
	}
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("%s: %w", name, err)
	}
}

// write replaces a file by one with the tensors.
func write(path string, h header, position any, t tensors) error {
	if t.err != nil {
		return t.err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("the solver's options: %w", err)
	}
	metadata := map[string]string{headerKey: string(text)}
	if position != nil {
		text, err := json.Marshal(position)
		if err != nil {
			return fmt.Errorf("the position: %w", err)
		}
		metadata[positionKey] = string(text)
	}
	if err := seal(metadata, t.list); err != nil {
		return err
	}
	return replace(path, func(w io.Writer) error { return safetensors.Write(w, metadata, t.list) })
}

// file is an open file.
type file struct {
	*safetensors.File
	io.Closer
	header *header         // nil for a file of another program
	note   string          // why the content is unchecked, or "" if it was checked
	read   map[string]bool // names of the tensors read
	err    error           // the first error of value
}

// open opens a file and checks that it is complete. It takes the size from the open file, since another process may replace
// the file at any time.
func open(path string) (*file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := wantFile(path, info); err != nil {
		return nil, err
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var f *file
	if info, err = opened.Stat(); err == nil {
		f, err = newFile(opened, info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), opened.Close())
	}
	f.Closer = opened
	return f, nil
}

// newFile checks that a file is complete and matches its checksum.
func newFile(from io.ReaderAt, size int64) (*file, error) {
	whole, err := safetensors.Open(from, size)
	if err != nil {
		return nil, err
	}
	checked, err := verify(whole, from, size)
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(whole)
	if err != nil {
		return nil, err
	}
	f := &file{File: whole, header: h, read: map[string]bool{}}
	if !checked {
		f.note, err = unchecked(whole, h)
	}
	return f, err
}

// wantFile returns an error unless the path is a regular file.
func wantFile(path string, info os.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: got a folder, want a file", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: got a file of mode %v, want a regular one", path, info.Mode())
	}
	return nil
}

// value reads a tensor. If it cannot, it sets err and returns nil.
func (f *file) value(name string) gorgonia.Value {
	f.read[name] = true
	v, err := f.tensor(name)
	if err != nil {
		if f.err == nil {
			f.err = err
		}
		return nil
	}
	return v
}

func (f *file) tensor(name string) (gorgonia.Value, error) {
	t := f.Find(name)
	if t == nil {
		return nil, fmt.Errorf("got a file without the tensor %q", name)
	}
	for dt, named := range dtypes {
		if named != t.Dtype {
			continue
		}
		if slices.Contains(t.Shape, 0) {
			return nil, fmt.Errorf("tensor %q: got the shape %v, want at least one element", name, t.Shape)
		}
		v, m := values.New(dt, tensor.Shape(t.Shape))
		if err := f.Read(t, m); err != nil {
			return nil, err
		}
		copy(m, littleEndian(m, dt.Size()))
		return v, nil
	}
	return nil, fmt.Errorf("tensor %q: got elements of %s, want F32 or F64", name, t.Dtype)
}

// littleEndian converts elements between the machine's byte order and the format's.
func littleEndian(m []byte, size int64) []byte {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return m
	}
	return reversed(m, size)
}

// reversed returns elements with their bytes reversed.
func reversed(m []byte, size int64) []byte {
	m = slices.Clone(m)
	for e := range slices.Chunk(m, int(size)) {
		slices.Reverse(e)
	}
	return m
}
