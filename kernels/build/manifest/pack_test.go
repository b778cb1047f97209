package manifest

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// An image whose dictionary is that of another target takes a part of the bytes, and is read with that other image alone; one without it is read as it is.
func TestPack(t *testing.T) {
	r := testutil.Random(t)
	images := map[string][]byte{"sm_80": make([]byte, 20_000)}
	for i := range images["sm_80"] {
		images["sm_80"][i] = byte(r.Uint32())
	}
	images["sm_70"] = append(bytes.Clone(images["sm_80"]), "more"...)
	files := map[string][]byte{}
	read := func(file string) ([]byte, error) {
		if packed, ok := files[file]; ok {
			return packed, nil
		}
		return nil, &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
	}
	pack := func(target string, images map[string][]byte) {
		t.Helper()
		files[ImageFile("a", target)] = testutil.Get[[]byte](t)(Pack(target, images))
	}
	same := func(target string) {
		t.Helper()
		if got, err := Unpack("a", target, read); err != nil || !bytes.Equal(got, images[target]) {
			t.Errorf("%s: got %d bytes, %v, want the image of %d", target, len(got), err, len(images[target]))
		}
	}
	if _, err := Unpack("a", "sm_70", read); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	pack("sm_70", map[string][]byte{"sm_70": images["sm_70"]})
	same("sm_70")
	pack("sm_80", images)
	same("sm_70") // which was packed without
	pack("sm_70", images)
	same("sm_80")
	same("sm_70")
	if n := len(files[ImageFile("a", "sm_70")]); n > 1000 {
		t.Errorf("got %d bytes of an image that its dictionary holds, want fewer than 1000", n)
	}
	for _, damage := range []func(){func() { files[ImageFile("a", "sm_80")][9000] ^= 1 }, func() { delete(files, ImageFile("a", "sm_80")) }} {
		damage()
		if got, err := Unpack("a", "sm_70", read); err == nil {
			t.Errorf("without its dictionary: got %d bytes and no error", len(got))
		}
	}
}
