// Package safetensors reads and writes the format of that name: eight bytes with the length
// of a header, the header, which is JSON, and the tensors' elements, little-endian and in
// row-major order, one tensor behind the other.
//
// It is as strict as the format's own library: a file that has holes, overlaps, bytes that no
// tensor owns, names twice or sizes that do not fit is an error that names the entry. Elements are
// read on demand, in any element type, without a copy of the file in memory.
package safetensors

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/internal/guard"
)

// largestHeader is the limit of the format's own library, in bytes.
const largestHeader = 100_000_000

// metadataKey is the name in the header that is no tensor's.
const metadataKey = "__metadata__"

// dtypeBits are the sizes of elements.
var dtypeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}

// Tensor is a tensor of a file.
type Tensor struct {
	Name  string
	Dtype string // "F32", "F64", ...
	Shape []int  // without axes for a scalar
	Data  []byte // elements to [Write]; a [File] leaves it nil

	begin, end uint64 // behind the header
	elements   *io.SectionReader
}

// Bytes returns the size of the elements in bytes.
func (t *Tensor) Bytes() (int, error) {
	if t == nil {
		return 0, errors.New("got a nil tensor")
	}
	size, ok := dtypeBits[t.Dtype]
	if !ok {
		return 0, fmt.Errorf("tensor %q: got elements of type %q, unknown to the format", t.Name, t.Dtype)
	}
	for _, d := range t.Shape {
		var high uint64
		if high, size = bits.Mul64(size, uint64(d)); d < 0 || high != 0 || size > math.MaxInt {
			return 0, fmt.Errorf("tensor %q: got the shape %v, want one of less than 2^63 bits", t.Name, t.Shape)
		}
	}
	if size%8 != 0 {
		return 0, fmt.Errorf("tensor %q: got %d bits, %s of shape %v, want whole bytes", t.Name, size, t.Dtype, t.Shape)
	}
	return int(size / 8), nil
}

// Write writes a file. Tensors of larger elements come first, so that all are aligned in it,
// and those of one size in the order of their names.
func Write(to io.Writer, metadata map[string]string, tensors []Tensor) error {
	sorted := slices.Clone(tensors)
	slices.SortStableFunc(sorted, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(dtypeBits[b.Dtype], dtypeBits[a.Dtype]), cmp.Compare(a.Name, b.Name))
	})
	if guard.IsNil(to) {
		return errors.New("got a nil writer")
	}
	header, err := newHeader(metadata, sorted)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, 1<<16)
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(header)))
	w.Write(length[:])
	w.Write(header)
	for _, t := range sorted {
		w.Write(t.Data)
	}
	return w.Flush() // of any error of the calls before
}

// newHeader returns the header of tensors in the order of the file, padded so that the data after
// it is aligned.
func newHeader(metadata map[string]string, tensors []Tensor) ([]byte, error) {
	header := []byte{'{'}
	entry := func(name string, value any) error {
		if !utf8.ValidString(name) {
			return fmt.Errorf("got the name %q, want UTF-8", name)
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if len(header) > 1 {
			header = append(header, ',')
		}
		header = append(append(append(header, key...), ':'), text...)
		return nil
	}
	if len(metadata) > 0 {
		for key, text := range metadata {
			if !utf8.ValidString(key) || !utf8.ValidString(text) {
				return nil, fmt.Errorf("got the metadata %q, %q, want UTF-8", key, text)
			}
		}
		if err := entry(metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	seen, at := map[string]bool{metadataKey: true}, 0
	for _, t := range tensors {
		if seen[t.Name] || t.Name == "" {
			return nil, fmt.Errorf("got the name %q, want a name that no other tensor has", t.Name)
		}
		seen[t.Name] = true
		n, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		if n != len(t.Data) {
			return nil, fmt.Errorf("tensor %q: got %d bytes, want %d of %s and shape %v", t.Name, len(t.Data), n, t.Dtype, t.Shape)
		}
		err = entry(t.Name, struct {
			Dtype   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets []int  `json:"data_offsets"`
		}{t.Dtype, append([]int{}, t.Shape...), []int{at, at + n}})
		if err != nil {
			return nil, err
		}
		at += n
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	if len(header) > largestHeader {
		return nil, fmt.Errorf("got a header of %d bytes, want %d at most", len(header), largestHeader)
	}
	return header, nil
}

// File is a file, or the shards of an index, whose headers [New] or [Open] has checked.
type File struct {
	Metadata map[string]string // nil for shards
	Tensors  []Tensor          // in the order of the file, then of the shards' names
	Header   []byte            // JSON, from byte 8 of the file on; nil for shards
	Raw      *io.SectionReader // the whole file; nil for shards

	index map[string]int // in Tensors, by name
	open  []io.Closer
}

// New reads the header of a file of size bytes and checks all of it.
func New(from io.ReaderAt, size int64) (*File, error) {
	if guard.IsNil(from) || size < 8 {
		return nil, fmt.Errorf("got %d bytes, want a safetensors file, which has more than 8", size)
	}
	raw := io.NewSectionReader(from, 0, size)
	var length [8]byte
	if err := readAt(raw, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > largestHeader:
		return nil, fmt.Errorf("not a safetensors file: it begins with a header's length of %d, want %d at most", n, largestHeader)
	case n > uint64(size-8):
		return nil, fmt.Errorf("truncated, or not a safetensors file: got %d bytes after the first 8, want a header of %d", size-8, n)
	}
	header := make([]byte, n)
	if err := readAt(raw, header, 8); err != nil {
		return nil, err
	}
	f := &File{Header: header, Raw: raw}
	if err := f.parse(header); err != nil {
		return nil, fmt.Errorf("not a safetensors file: its header: %w", err)
	}
	start := 8 + int64(n)
	if err := f.check(uint64(size - start)); err != nil {
		return nil, err
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		t.elements = io.NewSectionReader(raw, start+int64(t.begin), int64(t.end-t.begin))
	}
	f.enumerate()
	return f, nil
}

// enumerate indexes the tensors by name.
func (f *File) enumerate() {
	f.index = make(map[string]int, len(f.Tensors))
	for i, t := range f.Tensors {
		f.index[t.Name] = i
	}
}

// Close closes the files of [Open].
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	var errs []error
	for _, c := range f.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// check checks that tensors fill the bytes behind the header, without holes and overlaps.
func (f *File) check(size uint64) error {
	slices.SortStableFunc(f.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at := uint64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n, err := t.Bytes()
		switch {
		case err != nil:
			return err
		case t.begin != at || t.end < t.begin:
			return fmt.Errorf("tensor %q: got bytes %d to %d, want them from %d on, where the tensor before it ends", t.Name, t.begin, t.end, at)
		case t.end-t.begin != uint64(n):
			return fmt.Errorf("tensor %q: got bytes %d to %d, want %d of them, for %s of shape %v", t.Name, t.begin, t.end, n, t.Dtype, t.Shape)
		}
		if at = t.end; at > size {
			return fmt.Errorf("truncated: tensor %q: got %d bytes of tensors, want its bytes %d to %d", t.Name, size, t.begin, t.end)
		}
	}
	if at < size {
		return fmt.Errorf("got %d bytes of tensors, want the %d that the header describes", size, at)
	}
	return nil
}

// Find returns the tensor of a name, nil if there is none.
func (f *File) Find(name string) *Tensor {
	i, ok := f.index[name]
	if !ok {
		return nil
	}
	return &f.Tensors[i]
}

// Read reads the elements of a tensor of a [File], as the file has them: [Tensor.Bytes] bytes.
func (t *Tensor) Read(into []byte) error {
	n, err := t.Bytes()
	if err != nil {
		return err
	}
	if t.elements == nil || len(into) != n {
		return fmt.Errorf("tensor %q: got %d bytes of memory, want the %d of a tensor of a File", t.Name, len(into), n)
	}
	return t.readAt(into, 0)
}

func (t *Tensor) readAt(into []byte, at int64) error {
	if err := readAt(t.elements, into, at); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

// readAt fills memory.
func readAt(from io.ReaderAt, into []byte, at int64) error {
	n, err := from.ReadAt(into, at)
	if n == len(into) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
