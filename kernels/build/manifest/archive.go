package manifest

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Archive holds the cubins of generated kernels for a target, each under the [Key] of the
// PTX that it was assembled from.
type Archive struct {
	Assembler string // and its options
	files     map[string]*zip.File
	reader    *zstd.Decoder
}

// Key returns the name, in an archive, of the cubin assembled from PTX: 96 bits of its [Sum].
func Key(ptx []byte) string { return Sum(ptx)[:24] }

// ArchiveFile is the name of a target's archive.
func ArchiveFile(target string) string { return target + ".zip" }

// Cubins are similar to each other, so they are compressed with parts of some of them as a dictionary, which
// is a file of the archive: to a ninth, instead of a third.
const (
	dictionaryFile = "dictionary"
	dictionarySize = 256 << 10
	dictionaryFrom = 40 // cubins, spread evenly over all
)

// ReadArchive reads an archive.
func ReadArchive(data []byte) (*Archive, error) {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	a := &Archive{Assembler: r.Comment, files: map[string]*zip.File{}}
	for _, f := range r.File {
		a.files[f.Name] = f
	}
	if len(a.files) == 0 {
		return a, nil
	}
	packed, err := a.read(dictionaryFile)
	if err != nil {
		return nil, err
	}
	delete(a.files, dictionaryFile)
	dictionary, err := Unpack(packed, nil)
	if err == nil {
		a.reader, err = newReader(dictionary, shared)
	}
	return a, err
}

// Keys returns the keys of the archive's kernels, in order.
func (a *Archive) Keys() []string { return slices.Sorted(maps.Keys(a.files)) }

// Cubin returns the cubin of PTX with that key, nil if there is none. It is safe for
// several goroutines.
func (a *Archive) Cubin(key string) ([]byte, error) {
	if a.files[key] == nil {
		return nil, nil
	}
	packed, err := a.read(key)
	if err != nil {
		return nil, err
	}
	cubin, err := a.reader.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return cubin, nil
}

// read returns a file as it is stored.
func (a *Archive) read(name string) (content []byte, err error) {
	f := a.files[name]
	if f == nil {
		return nil, fmt.Errorf("no file %s in the archive", name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r) // which checks the sum
}

// WriteArchive returns an archive of cubins. Its bytes depend only on the cubins and on the versions
// of Go and of the packing library.
func WriteArchive(assembler string, cubins map[string][]byte) ([]byte, error) {
	keys := slices.Sorted(maps.Keys(cubins))
	var dictionary []byte
	for i := 0; i < len(keys) && len(dictionary) < dictionarySize; i += max(len(keys)/dictionaryFrom, 1) {
		cubin := cubins[keys[i]]
		dictionary = append(dictionary, cubin[:min(dictionarySize-len(dictionary), len(cubin))]...)
	}
	var data bytes.Buffer
	w := zip.NewWriter(&data)
	err := w.SetComment(assembler)
	add := func(name string, content []byte) {
		f, failed := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store}) // packed already
		if failed == nil {
			_, failed = f.Write(content)
		}
		err = errors.Join(err, failed)
	}
	add(dictionaryFile, Pack(dictionary, nil))
	for _, key := range keys {
		packed, failed := pack(cubins[key], dictionary)
		err = errors.Join(err, failed)
		add(key, packed)
	}
	err = errors.Join(err, w.Close())
	return data.Bytes(), err
}
