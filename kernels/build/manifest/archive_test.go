package manifest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Files are read from an archive as they were written, the same files make the same bytes, and
// damage is found.
func TestArchive(t *testing.T) {
	r := testutil.Random(t)
	common := make([]byte, 20_000)
	for i := range common {
		common[i] = byte(r.Uint32())
	}
	cubins := map[string][]byte{}
	for i := range 20 {
		cubin := bytes.Clone(common[:15_000+r.IntN(1500)]) // so that whichever two are the dictionary, they hold nearly all of the others
		cubins[Key([]byte(fmt.Sprint(i)))] = append(cubin, fmt.Sprint("kernel ", i)...)
	}
	data, err := WriteArchive("an assembler", cubins)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := WriteArchive("an assembler", cubins); err != nil || !bytes.Equal(data, again) {
		t.Errorf("the same files give other bytes, %v", err)
	}
	if len(data) > 3*len(common) {
		t.Errorf("20 files with 20 000 bytes in common take %d bytes", len(data))
	}
	a, err := ReadArchive(data)
	if err != nil || a.Assembler != "an assembler" || len(a.Keys()) != len(cubins) {
		t.Fatalf("got %+v, %v", a, err)
	}
	for key, want := range cubins {
		if got, err := a.Cubin(key); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%.12s: got %d bytes, %v, want %d", key, len(got), err, len(want))
		}
	}
	if got, err := a.Cubin("none"); got != nil || err != nil {
		t.Errorf("a file that is not there: got %d bytes, %v", len(got), err)
	}
	if _, err := ReadArchive(data[:len(data)/2]); err == nil {
		t.Error("half an archive is read without an error")
	}
	wrong := bytes.Clone(data)
	for i := len(wrong) / 4; i < len(wrong)*3/4; i++ {
		wrong[i] ^= 0x55
	}
	a, err = ReadArchive(wrong)
	for key := range cubins {
		if err == nil {
			_, err = a.Cubin(key)
		}
	}
	if err == nil {
		t.Error("damaged files are read without an error")
	}
	if a, err := ReadArchive(nil); err != nil || len(a.Keys()) != 0 {
		t.Errorf("an archive without files: got %+v, %v", a, err)
	}
}
