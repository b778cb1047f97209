package testutil

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// pieces are the blocks of Go code and of text in a document.
var pieces = regexp.MustCompile("(?ms)^```(go|text)\n(.*?)^```$")

// CheckDocument checks that the Go code in a document, at least that many blocks, is part of the
// examples in a file or in one of more, which are compiled and run, and that its blocks of text are
// their output.
func CheckDocument(t *testing.T, document, file string, least int, more ...string) {
	t.Helper()
	examples := ""
	for _, path := range append([]string{file}, more...) {
		examples += "\n" + string(Get[[]byte](t)(os.ReadFile(path)))
	}
	blocks := pieces.FindAllStringSubmatch(string(Get[[]byte](t)(os.ReadFile(document))), -1)
	for _, b := range blocks {
		text := b[2]
		if b[1] == "text" {
			text = regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSuffix(text, "\n"), "\t// ") + "\n"
		}
		if !strings.Contains(examples, "\n"+text) {
			t.Errorf("%s does not have the piece of %s\n%s", strings.Join(append([]string{file}, more...), ", "), document, text)
		}
	}
	if len(blocks) < least {
		t.Errorf("%s has %d pieces of code and of output, want %d", document, len(blocks), least)
	}
}
