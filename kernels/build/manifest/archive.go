package manifest

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Archive holds the cubins of generated kernels for a target, each under the [Sum] of the
// PTX that it was assembled from.
type Archive struct {
	Assembler string // and its options
	files     map[string]*zip.File
}

// ArchiveFile is the name of a target's archive.
func ArchiveFile(target string) string { return target + ".zip" }

// Cubins are similar to each other, so they are compressed with some of them as a dictionary, which
// is a file of the archive: to a tenth, instead of a third.
const (
	dictionaryFile = "dictionary"
	packed         = 0x5370 // the method of files packed with the dictionary
	dictionarySize = 32 << 10
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
	dictionary, err := a.Cubin(dictionaryFile)
	if err != nil {
		return nil, err
	}
	delete(a.files, dictionaryFile)
	r.RegisterDecompressor(packed, func(r io.Reader) io.ReadCloser { return flate.NewReaderDict(r, dictionary) })
	return a, nil
}

// Digests returns the digests of the archive's kernels, in order.
func (a *Archive) Digests() []string { return slices.Sorted(maps.Keys(a.files)) }

// Cubin returns the cubin of PTX with that digest, nil if there is none. It is safe for
// several goroutines.
func (a *Archive) Cubin(digest string) (cubin []byte, err error) {
	f := a.files[digest]
	if f == nil {
		return nil, nil
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", digest, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r) // which checks the sum
}

// WriteArchive returns an archive of cubins. The same Go gives the same bytes.
func WriteArchive(assembler string, cubins map[string][]byte) ([]byte, error) {
	var dictionary []byte
	digests := slices.Sorted(maps.Keys(cubins))
	for _, d := range digests {
		if room := dictionarySize - len(dictionary); room > 0 {
			dictionary = append(dictionary, cubins[d][:min(room, len(cubins[d]))]...)
		}
	}
	var data bytes.Buffer
	w := zip.NewWriter(&data)
	w.RegisterCompressor(packed, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriterDict(w, flate.BestCompression, dictionary)
	})
	err := w.SetComment(assembler)
	add := func(name string, method uint16, content []byte) {
		f, failed := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if failed == nil {
			_, failed = f.Write(content)
		}
		err = errors.Join(err, failed)
	}
	add(dictionaryFile, zip.Deflate, dictionary)
	for _, d := range digests {
		add(d, packed, cubins[d])
	}
	err = errors.Join(err, w.Close())
	return data.Bytes(), err
}
