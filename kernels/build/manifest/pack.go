package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/stheno-ml/stheno/kernels/internal/lzma"
)

// similar names, by target, the target whose image of the same source an image continues, since their instructions are encoded alike:
// images of sm_70 take 0.75 of the bytes that they take alone.
var similar = map[string]string{"sm_70": "sm_80", "sm_100": "sm_120"}

// kind returns the kind of a target's images.
func kind(target string) lzma.Kind {
	if target == PTX {
		return lzma.Text
	}
	return lzma.Code
}

// A packed image begins with a byte, 1 if it continues the image for the similar target, else 0, and the image's checksum.
const headBytes = 5

// Pack compresses the image for a target, to about an eighth. images are those of one source, by target.
func Pack(target string, images map[string][]byte) ([]byte, error) {
	image := images[target]
	text := image
	if target == PTX {
		var err error
		if text, err = ptxDifferences(image); err != nil {
			return nil, err
		}
	}
	past, head := lzma.Start(kind(target)), []byte{0}
	if other, ok := images[similar[target]]; ok {
		_, past = lzma.Encode(past, other)
		head[0] = 1
	}
	packed, _ := lzma.Encode(past, text)
	return append(binary.LittleEndian.AppendUint32(head, crc32.ChecksumIEEE(image)), packed...), nil
}

// Unpack returns a source's image for a target that Pack compressed. read returns files by name. It is safe for several goroutines.
func Unpack(stem, target string, read func(file string) ([]byte, error)) ([]byte, error) {
	image, _, err := unpack(stem, target, read)
	return image, err
}

func unpack(stem, target string, read func(file string) ([]byte, error)) (image []byte, after *lzma.Past, err error) {
	file, err := read(ImageFile(stem, target))
	if err != nil {
		return nil, nil, err
	}
	if len(file) < headBytes {
		return nil, nil, fmt.Errorf("got %d bytes, want at least %d", len(file), headBytes)
	}
	past := lzma.Start(kind(target))
	if file[0] == 1 && similar[target] != "" {
		if _, past, err = unpack(stem, similar[target], read); err != nil {
			return nil, nil, err
		}
	}
	image, after, err = past.Decode(file[headBytes:])
	if err != nil {
		return nil, nil, err
	}
	if target == PTX {
		image = ptxNumbers(image)
	}
	if got, want := crc32.ChecksumIEEE(image), binary.LittleEndian.Uint32(file[1:]); got != want {
		return nil, nil, fmt.Errorf("got an image of checksum %08x, want %08x", got, want)
	}
	return image, after, nil
}

// PackManifest compresses the text of a manifest.
func PackManifest(text []byte) []byte {
	packed, _ := lzma.Encode(lzma.Start(lzma.Text), text)
	return packed
}

// UnpackManifest returns the text that PackManifest compressed.
func UnpackManifest(packed []byte) ([]byte, error) {
	text, _, err := lzma.Start(lzma.Text).Decode(packed)
	return text, err
}
