package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"sync"

	"github.com/stheno-ml/stheno/kernels/internal/cubin"
	"github.com/stheno-ml/stheno/kernels/internal/lzma"
)

const instructionBytes = 16

type instruction = [instructionBytes]byte

// reorder returns an instruction's bytes in the order in which they are packed: the opcode, then registers, then the bits that schedule the
// instruction. Of the orders that were tried, this one packs machine code best.
func reorder(was *instruction) instruction {
	return instruction{was[0], was[9], was[11], was[10], was[8], was[1], was[4], was[5], was[12], was[3], was[7], was[6], was[2], was[13], was[15], was[14]}
}

// restore is the inverse of reorder.
func restore(was *instruction) instruction {
	return instruction{was[0], was[5], was[12], was[9], was[6], was[7], was[11], was[10], was[4], was[1], was[3], was[2], was[8], was[13], was[15], was[14]}
}

// change changes the instructions of a cubin.
func change(image []byte, to func(*instruction) instruction) []byte {
	for code := range cubin.Code(image) {
		for ; len(code) >= instructionBytes; code = code[instructionBytes:] {
			at := (*instruction)(code)
			*at = to(at)
		}
	}
	return image
}

// reordered returns a copy of a cubin with reordered instructions.
func reordered(image []byte) []byte { return change(bytes.Clone(image), reorder) }

// whole returns the instructions' worth of a dictionary: contexts of the text that continues it depend on the offset in an instruction.
func whole(text []byte) []byte { return text[:len(text)&^(instructionBytes-1)] }

// Dictionary is the source of whose cubin a target's dictionary is made, which the other cubins for that target continue. A dictionary stays as it is
// when the source changes, so that the other files keep their bytes.
const Dictionary = "sum"

// DictionaryFile returns the name of a target's dictionary in the folder of images. Only Stheno's own folder has dictionaries, and none for PTX.
func DictionaryFile(target string) string { return ImageFile("dictionary", target) }

// PackDictionary makes a dictionary of a cubin.
func PackDictionary(image []byte) []byte {
	packed, _ := lzma.Encode(lzma.Start(lzma.Code), whole(reordered(image)))
	return packed
}

var pasts sync.Map // func() (*lzma.Past, error) by packed dictionary

// start returns the past that a target's images continue.
func start(target string, read func(file string) ([]byte, error)) (*lzma.Past, error) {
	if target == PTX {
		return lzma.Start(lzma.Text), nil
	}
	packed, err := read(DictionaryFile(target))
	if errors.Is(err, fs.ErrNotExist) {
		return lzma.Start(lzma.Code), nil
	}
	if err != nil {
		return nil, err
	}
	past, _ := pasts.LoadOrStore(string(packed), sync.OnceValues(func() (*lzma.Past, error) {
		_, past, err := lzma.Start(lzma.Code).Decode(packed)
		return past, err
	}))
	return past.(func() (*lzma.Past, error))()
}

const headBytes = 4 // of the image's checksum

// Pack compresses an image for a target, to about a tenth. read reads a file of the folder of images.
func Pack(target string, image []byte, read func(file string) ([]byte, error)) ([]byte, error) {
	past, err := start(target, read)
	if err != nil {
		return nil, err
	}
	text := reordered(image)
	if target == PTX {
		if text, err = ptxDifferences(image); err != nil {
			return nil, err
		}
	}
	own := *past // others pack with it, too
	packed, _ := lzma.Encode(&own, text)
	return append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(image)), packed...), nil
}

// Unpack returns the image that Pack compressed.
func Unpack(stem, target string, read func(file string) ([]byte, error)) ([]byte, error) {
	file, err := read(ImageFile(stem, target))
	if errors.Is(err, fs.ErrNotExist) {
		if tests, none := read(testsFile(stem, target)); none == nil {
			file, err = tests, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if len(file) < headBytes {
		return nil, fmt.Errorf("got %d bytes, want at least %d", len(file), headBytes)
	}
	past, err := start(target, read)
	if err != nil {
		return nil, err
	}
	image, _, err := past.Decode(file[headBytes:])
	if err != nil {
		return nil, err
	}
	if target == PTX {
		image = ptxNumbers(image)
	} else {
		change(image, restore)
	}
	if got, want := crc32.ChecksumIEEE(image), binary.LittleEndian.Uint32(file); got != want {
		return nil, fmt.Errorf("got an image of checksum %08x, want %08x", got, want)
	}
	return image, nil
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
