package manifest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/stheno-ml/stheno/internal/fingerprint"
	"github.com/stheno-ml/stheno/kernels/internal/lzma"
)

// Archive holds the cubins of generated kernels for a target, each under the [Key] of the PTX that it was assembled from.
//
// Its file is a checksum of the rest, the sizes of three parts and these, the assembler, the dictionary, packed, and an index: for each cubin, in
// the order of keys, the key and the size. Then come all cubins, packed. Integers are of 32 bits and little-endian. A zip archive of the same takes
// 124 bytes more for each cubin, a tenth of all.
type Archive struct {
	Assembler string            // and its options
	cubins    map[string][]byte // packed
	past      *lzma.Past        // the dictionary, which each cubin continues
}

// Key returns the name, in an archive, of the cubin assembled from PTX.
func Key(ptx []byte) string { return Sum(ptx) }

// ArchiveFile is the name of a target's archive.
func ArchiveFile(target string) string { return target + ".archive" }

// Cubins are similar to each other, so each is compressed as the continuation of a dictionary, parts of some of them.
const (
	dictionarySize = 256 << 10
	dictionaryFrom = 40 // cubins, spread evenly over all
)

// ReadArchive reads an archive.
func ReadArchive(data []byte) (*Archive, error) {
	a := &Archive{cubins: map[string][]byte{}}
	if len(data) == 0 {
		return a, nil
	}
	in := source{rest: data}
	if sum := in.number(); in.err == nil && sum != crc32.ChecksumIEEE(in.rest) {
		return nil, fmt.Errorf("got an archive of checksum %08x, want %08x", crc32.ChecksumIEEE(in.rest), sum)
	}
	a.Assembler = string(in.take(in.number()))
	packed := in.take(in.number())
	index := source{rest: in.take(in.number())}
	for len(index.rest) > 0 && in.err == nil {
		key := hex.EncodeToString(index.take(fingerprint.Size))
		a.cubins[key] = in.take(index.number())
		in.err = errors.Join(in.err, index.err)
	}
	if in.err != nil {
		return nil, in.err
	}
	var err error
	_, a.past, err = lzma.Start(lzma.Code).Decode(packed)
	return a, err
}

// source is what is left of a file that is read.
type source struct {
	rest []byte
	err  error
}

// take returns the next bytes.
func (s *source) take(n uint32) []byte {
	if int64(n) > int64(len(s.rest)) {
		s.err = fmt.Errorf("got an archive that ends early: %d bytes are left, want %d", len(s.rest), n)
		n = 0
	}
	taken := s.rest[:n:n]
	s.rest = s.rest[n:]
	return taken
}

// number returns the next integer.
func (s *source) number() uint32 {
	b := s.take(4)
	if s.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

// Keys returns the keys of the archive's kernels, in order.
func (a *Archive) Keys() []string { return slices.Sorted(maps.Keys(a.cubins)) }

// Cubin returns the cubin of PTX with that key, nil if there is none. It is safe for several goroutines.
func (a *Archive) Cubin(key string) ([]byte, error) {
	packed := a.cubins[key]
	if packed == nil {
		return nil, nil
	}
	cubin, _, err := a.past.Decode(packed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return change(cubin, restore), nil
}

// WriteArchive returns an archive of cubins. Its bytes depend only on the cubins.
func WriteArchive(assembler string, cubins map[string][]byte) ([]byte, error) {
	keys := slices.Sorted(maps.Keys(cubins))
	var text []byte
	for i := 0; i < len(keys) && len(text) < dictionarySize; i += max(len(keys)/dictionaryFrom, 1) {
		cubin := whole(reordered(cubins[keys[i]]))
		text = append(text, cubin[:min(dictionarySize-len(text), len(cubin))]...)
	}
	dictionary, past := lzma.Encode(lzma.Start(lzma.Code), text)
	var index, all []byte
	for _, key := range keys {
		name, err := hex.DecodeString(key)
		if err != nil || len(name) != fingerprint.Size {
			return nil, fmt.Errorf("got key %q, want %d hexadecimal digits", key, 2*fingerprint.Size)
		}
		packed, _ := lzma.Encode(past, reordered(cubins[key]))
		index = binary.LittleEndian.AppendUint32(append(index, name...), uint32(len(packed)))
		all = append(all, packed...)
	}
	data := make([]byte, 4)
	for _, part := range [][]byte{[]byte(assembler), dictionary, index} {
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(part))), part...)
	}
	data = append(data, all...)
	binary.LittleEndian.PutUint32(data, crc32.ChecksumIEEE(data[4:]))
	return data, nil
}
