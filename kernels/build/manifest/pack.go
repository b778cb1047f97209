package manifest

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A Packer compresses texts with Zstandard, each with a dictionary, which may be nil: similar bytes, which need no form of their own. The same texts
// give the same bytes.
type Packer func(texts, dictionaries [][]byte) ([][]byte, error)

// similar names, by target, the target whose image of the same source is the dictionary of an image, since their instructions are encoded alike:
// images of sm_70 take 0.78 of the bytes that they take without, those of sm_100 0.85.
var similar = map[string]string{"sm_70": "sm_80", "sm_100": "sm_120"}

// Pack compresses the image for a target, to about a seventh. images are those of one source, by target.
func Pack(pack Packer, target string, images map[string][]byte) ([]byte, error) {
	image := images[target]
	if target == PTX {
		var err error
		if image, err = ptxDifferences(image); err != nil {
			return nil, err
		}
	}
	packed, err := pack([][]byte{image}, [][]byte{images[similar[target]]})
	if err != nil {
		return nil, err
	}
	return packed[0], nil
}

// Unpack returns a source's image for a target that Pack compressed. read returns files by name. It is safe for several goroutines.
func Unpack(stem, target string, read func(file string) ([]byte, error)) ([]byte, error) {
	packed, err := read(ImageFile(stem, target))
	if err != nil {
		return nil, err
	}
	r, err := reader()
	if other := similar[target]; other != "" {
		dictionary, failed := Unpack(stem, other, read)
		switch {
		case failed == nil:
			r, err = newReader(dictionary)
		case !errors.Is(failed, fs.ErrNotExist): // else the source is not compiled for the other target
			return nil, failed
		}
	}
	if err != nil {
		return nil, err
	}
	image, err := r.DecodeAll(packed, nil)
	if target == PTX && err == nil {
		image = ptxNumbers(image)
	}
	return image, err
}

// reader returns the one reader of files that were packed without a dictionary.
var reader = sync.OnceValues(func() (*zstd.Decoder, error) { return newReader(nil) })

// shared is how many goroutines may use a reader that serves all of them, at a time; the others wait. An archive
// was read in 1.7 ms with such a reader, in 3.5 with one for 16.
const shared = 4

// newReader returns a reader of files that were packed with a dictionary, if there is one.
func newReader(dictionary []byte) (*zstd.Decoder, error) {
	options := []zstd.DOption{zstd.WithDecoderConcurrency(shared)}
	if len(dictionary) > 0 {
		options = append(options, zstd.WithDecoderDictRaw(0, dictionary)) // as packed data names none
	}
	return zstd.NewReader(nil, options...)
}
