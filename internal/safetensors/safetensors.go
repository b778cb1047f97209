// Package safetensors reads and writes the format of that name: eight bytes with the length
// of a header, the header, which is JSON, and the tensors' elements, little-endian and in
// row-major order, one tensor behind the other.
//
// It is as strict as the format's own library: a file that has holes, overlaps, bytes that no
// tensor owns, names twice or sizes that do not fit is an error.
package safetensors

import (
	"bufio"
	"bytes"
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

// Tensor is a tensor of a file. Data is its elements as the file has them; nil for one
// that [Open] found.
type Tensor struct {
	Name  string
	Dtype string // "F32", "F64", ...
	Shape []int  // without axes for a scalar
	Data  []byte

	begin, end uint64 // behind the header
}

// Bytes returns the size of the elements in bytes.
func (t *Tensor) Bytes() (int, error) {
	size, ok := dtypeBits[t.Dtype]
	if !ok {
		return 0, fmt.Errorf("tensor %q: got elements of %q, which is no type of the format", t.Name, t.Dtype)
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
			return nil, fmt.Errorf("got the name %q for a tensor, want one of its own", t.Name)
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

// File is a file that [Open] has found to be whole.
type File struct {
	Metadata map[string]string
	Tensors  []Tensor // in the order of the file

	from   io.ReaderAt
	header []byte
	start  int64 // of the bytes that follow the header
}

// Open reads the header of a file of size bytes and checks all of it. The elements are read by
// [File.Read].
func Open(from io.ReaderAt, size int64) (*File, error) {
	if size < 8 {
		return nil, fmt.Errorf("got %d bytes, want a safetensors file, which has more than 8", size)
	}
	var length [8]byte
	if err := readAt(from, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > largestHeader:
		return nil, fmt.Errorf("no safetensors file: it begins with a header's length of %d, want %d at most", n, largestHeader)
	case n > uint64(size-8):
		return nil, fmt.Errorf("truncated, or no safetensors file: got %d bytes behind the first 8, want a header of %d", size-8, n)
	}
	header := make([]byte, n)
	if err := readAt(from, header, 8); err != nil {
		return nil, err
	}
	f := &File{from: from, header: header, start: 8 + int64(n)}
	if err := f.parse(header); err != nil {
		return nil, fmt.Errorf("no safetensors file: its header: %w", err)
	}
	if err := f.check(uint64(size - f.start)); err != nil {
		return nil, err
	}
	return f, nil
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
		at = t.end
	}
	switch {
	case at > size:
		return fmt.Errorf("truncated: got %d bytes of tensors, want %d", size, at)
	case at < size:
		return fmt.Errorf("got %d bytes of tensors, want the %d that the header describes", size, at)
	}
	return nil
}

// Find returns the tensor of a name, nil if there is none.
func (f *File) Find(name string) *Tensor {
	i := slices.IndexFunc(f.Tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Tensors[i]
}

// Offset returns where in the file the header has a text, -1 if it has it not once.
func (f *File) Offset(text string) int64 {
	if bytes.Count(f.header, []byte(text)) != 1 {
		return -1
	}
	return 8 + int64(bytes.Index(f.header, []byte(text)))
}

// Read reads the elements of one of the file's tensors.
func (f *File) Read(t *Tensor, into []byte) error {
	if uint64(len(into)) != t.end-t.begin {
		return fmt.Errorf("tensor %q: got %d bytes of memory, want %d", t.Name, len(into), t.end-t.begin)
	}
	if err := readAt(f.from, into, f.start+int64(t.begin)); err != nil {
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
