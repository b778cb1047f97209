package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// testCubin returns random bytes as the instructions of a cubin of one section.
func testCubin(t *testing.T, instructions int) []byte {
	const table, code = 64, 128
	le := binary.LittleEndian
	image := make([]byte, code+16*instructions)
	r := testutil.Random(t)
	for i := code; i < len(image); i++ {
		image[i] = byte(r.Uint32())
	}
	copy(image, "\x7fELF")
	le.PutUint64(image[40:], table)
	le.PutUint16(image[60:], 1)
	le.PutUint64(image[table+8:], 4) // executable
	le.PutUint64(image[table+24:], code)
	le.PutUint64(image[table+32:], uint64(16*instructions))
	return image
}

// The bytes of instructions are packed in another order, those around them as they are.
func TestReorder(t *testing.T) {
	image := testCubin(t, 3)
	packed := reordered(image)
	if !bytes.Equal(packed[:128], image[:128]) {
		t.Error("the headers differ")
	}
	for i := 128; i < len(image); i += instructionBytes {
		was, is := image[i:i+instructionBytes], packed[i:i+instructionBytes]
		if bytes.Equal(was, is) || !bytes.Equal(slices.Sorted(slices.Values(was)), slices.Sorted(slices.Values(is))) {
			t.Errorf("instruction % x is packed as % x", was, is)
		}
	}
	if !bytes.Equal(change(packed, restore), image) {
		t.Error("restore leaves another cubin")
	}
	if text := image[1:]; !bytes.Equal(reordered(text), text) {
		t.Error("what is no cubin is packed as another text")
	}
}

// An image that a dictionary holds takes a part of the bytes, and is read with that dictionary alone; without one, it is read as it is.
func TestPack(t *testing.T) {
	image := testCubin(t, 1000)
	files := map[string][]byte{}
	read := func(file string) ([]byte, error) {
		if packed, ok := files[file]; ok {
			return packed, nil
		}
		return nil, &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
	}
	pack := func() int {
		t.Helper()
		file := ImageFile("a", "sm_80")
		files[file] = testutil.Get[[]byte](t)(Pack("sm_80", image, read))
		if got, err := Unpack("a", "sm_80", read); err != nil || !bytes.Equal(got, image) {
			t.Errorf("got %d bytes, %v, want the image of %d", len(got), err, len(image))
		}
		return len(files[file])
	}
	if _, err := Unpack("a", "sm_80", read); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	if n := pack(); n < 16_000 {
		t.Errorf("got %d bytes of 1000 random instructions, want 16000", n)
	}
	dictionary := DictionaryFile("sm_80")
	files[dictionary] = PackDictionary(image)
	if n := pack(); n > 1000 {
		t.Errorf("got %d bytes of an image that its dictionary holds, want fewer than 1000", n)
	}
	for _, damage := range []func(){func() { files[dictionary][9000] ^= 1 }, func() { delete(files, dictionary) }} {
		damage()
		if got, err := Unpack("a", "sm_80", read); err == nil {
			t.Errorf("without its dictionary: got %d bytes and no error", len(got))
		}
	}
}
