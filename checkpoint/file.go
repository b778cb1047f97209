package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// dtypes are the format's names of element types.
var dtypes = map[kernels.Dtype]string{kernels.Float32: "F32", kernels.Float64: "F64", kernels.Uint8: "U8", kernels.Int32: "I32", kernels.Int64: "I64", kernels.Bool: "BOOL"}

// nameOf returns the format's name of an element type, "" if it has none. Go's int is saved as int64.
func nameOf(dt kernels.Dtype) string {
	if dt == kernels.Int {
		dt = kernels.Int64
	}
	return dtypes[dt]
}

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
		if nameOf(dt) == "" || dt == kernels.Int && dt.Size() != kernels.Int64.Size() {
			err = fmt.Errorf("got %v, which a file has no type for", v.Dtype())
		}
		t.list = append(t.list, safetensors.Tensor{Name: name, Dtype: nameOf(dt), Shape: v.Shape(), Data: littleEndian(m, dt.Size())})
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
	header *header // nil for a file of another program
	note   string  // why the content is unchecked, or "" if it was checked
	err    error   // the first error of value
}

// open opens what [safetensors.Open] opens, and checks that it is complete and matches its checksum. Errors have the path.
func open(path string) (*file, error) {
	whole, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := newFile(whole)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), whole.Close())
	}
	return f, nil
}

// newFile checks that a file matches its checksum.
func newFile(whole *safetensors.File) (*file, error) {
	checked, err := verify(whole)
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(whole)
	if err != nil {
		return nil, err
	}
	f := &file{File: whole, header: h}
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
		if named == t.Dtype {
			return read(t, dt, false)
		}
	}
	return nil, fmt.Errorf("tensor %q: got elements of %s, want those of a state", name, t.Dtype)
}

// read returns a tensor of a file, or its transpose, with elements converted to dt.
func read(t *safetensors.Tensor, dt kernels.Dtype, transposed bool) (gorgonia.Value, error) {
	shape := tensor.Shape(slices.Clone(t.Shape))
	switch {
	case slices.Contains(shape, 0):
		return nil, fmt.Errorf("tensor %q: got the shape %v, want at least one element", t.Name, t.Shape)
	case transposed && len(shape) != 2:
		return nil, fmt.Errorf("tensor %q: got the shape %v for Transposed, want two axes", t.Name, shape)
	case transposed:
		slices.Reverse(shape)
	}
	v, m, err := values.Make(dt, shape)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	switch dt {
	case kernels.Float32:
		err = elements(t, kernels.Elements[float32](m), transposed)
	case kernels.Float64:
		err = elements(t, kernels.Elements[float64](m), transposed)
	case kernels.Uint8:
		err = elements(t, m, transposed)
	case kernels.Bool:
		if err = elements(t, m, transposed); err == nil && slices.Max(m) > 1 {
			err = fmt.Errorf("tensor %q: got the number %d of %s, want 0 or 1 for bool", t.Name, slices.Max(m), t.Dtype)
		}
	case kernels.Int32:
		err = elements(t, kernels.Elements[int32](m), transposed)
	case kernels.Int64:
		err = elements(t, kernels.Elements[int64](m), transposed)
	default:
		err = elements(t, kernels.Elements[int](m), transposed)
	}
	return v, err
}

// elements reads the elements of a tensor or of its transpose.
func elements[T safetensors.Element](t *safetensors.Tensor, into []T, transposed bool) error {
	if !transposed {
		return safetensors.Elements(t, 0, into)
	}
	const block = 32 // rows whose columns are contiguous in the transpose
	rows, cols := t.Shape[0], t.Shape[1]
	buffer := make([]T, min(block, rows)*cols)
	for first := 0; first < rows; first += block {
		n := min(block, rows-first)
		if err := safetensors.Elements(t, first*cols, buffer[:n*cols]); err != nil {
			return err
		}
		for c := range cols {
			for r := range n {
				into[c*rows+first+r] = buffer[r*cols+c]
			}
		}
	}
	return nil
}

// littleEndian converts elements of the machine's byte order to the format's.
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
