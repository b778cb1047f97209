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

// Read reads the file that the flag -text names, of least bytes or more, and returns what to call it;
// the Opticks for no name. A copy of the Opticks is called by its title, too.
func Read(path string, least int) (text []byte, name string, err error) {
	if path == "" {
		if path, err = Path(); err != nil {
			return nil, "", fmt.Errorf("%s, is not there (%w): give another text of at least %d bytes by -text book.txt", Name, err, least)
		}
	}
	if text, err = os.ReadFile(path); err != nil {
		return nil, "", fmt.Errorf("-text: %w", err)
	}
	if len(text) < least {
		return nil, "", fmt.Errorf("-text %s has %d bytes, want at least %d", path, len(text), least)
	}
	if fmt.Sprintf("%x", sha256.Sum256(text)) == sum {
		return text, Name, nil
	}
	return text, "the file " + filepath.Base(path), nil
}
