package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
)

// checksumKey is the name of a file's checksum in the metadata: the SHA-256, in hexadecimal digits, of the
// whole file with these digits as zeros.
const checksumKey = "stheno.sha256"

// noDigits replaces the digits of the checksum while it is computed.
var noDigits = strings.Repeat("0", 2*sha256.Size)

// seal adds the checksum of a file to its metadata.
func seal(metadata map[string]string, list []safetensors.Tensor) error {
	metadata[checksumKey] = strconv.Quote(noDigits)
	h := sha256.New()
	if err := safetensors.Write(h, metadata, list); err != nil {
		return err
	}
	metadata[checksumKey] = strconv.Quote(hex.EncodeToString(h.Sum(nil)))
	return nil
}

// verify returns an error if a file does not match its checksum, and reports whether it has one.
func verify(f *safetensors.File) (checked bool, err error) {
	text, has := f.Metadata[checksumKey]
	if !has {
		return false, nil
	}
	digits := int64(len(noDigits))
	want, err := strconv.Unquote(text)
	if err != nil || len(want) != len(noDigits) || bytes.Count(f.Header, []byte(want)) != 1 {
		return false, fmt.Errorf("metadata %q: got %q, want %d digits in quotes, once in the header", checksumKey, text, digits)
	}
	at := 8 + int64(bytes.Index(f.Header, []byte(want)))
	h := sha256.New()
	_, err = io.Copy(h, io.MultiReader(io.NewSectionReader(f.Raw, 0, at), strings.NewReader(noDigits),
		io.NewSectionReader(f.Raw, at+digits, f.Raw.Size()-at-digits)))
	if err != nil {
		return false, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return false, fmt.Errorf("got a damaged file: its SHA-256 is %s, want %s, as its metadata %q say", got, want, checksumKey)
	}
	return true, nil
}

// unchecked returns a note about a file without a checksum. It returns an error if the file's version has checksums, or if a
// key of Stheno's in the metadata is damaged.
func unchecked(f *safetensors.File, h *header) (note string, err error) {
	if h != nil {
		if h.Version > 1 {
			return "", fmt.Errorf("got a file of version %d without the metadata %q, want its checksum there", h.Version, checksumKey)
		}
		return fmt.Sprintf("a file of version %d, which has no checksum: its content is unchecked", h.Version), nil
	}
	for key := range f.Metadata {
		for _, own := range []string{headerKey, checksumKey} {
			if oneEdit(key, own) {
				return "", fmt.Errorf("got a damaged file with the metadata %q, want %q and a checksum", key, own)
			}
		}
	}
	return "a file of another program, without a checksum of Stheno: its content is unchecked", nil
}

// oneEdit reports whether two texts differ by one changed, inserted or deleted byte.
func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	return i < len(b) && (len(a) == len(b) && a[i+1:] == b[i+1:] || a[i:] == b[i+1:])
}
