// Package opticks finds a text that comes with Go's sources: Isaac Newton's Opticks (1704), 567 KB.
package opticks

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Name is the title of the text.
const Name = "Isaac Newton's Opticks (1704), which comes with Go's sources"

// sum is the SHA-256 of the text.
const sum = "d4a9ac22462b35e7821a4f2706c211093da678620a8f9997989ee7cf8d507bbd"

// Path returns where the text is, or an error that explains why it is not there: no command go, or
// a Go without its test data.
func Path() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", "testdata", "Isaac.Newton-Opticks.txt")
	_, err = os.Stat(path)
	return path, err
}

// Is reports whether a text is the Opticks, wherever it was read from.
func Is(text []byte) bool { return fmt.Sprintf("%x", sha256.Sum256(text)) == sum }
