package maintain

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

var (
	fenced   = regexp.MustCompile("(?ms)^```(\\w*)[^\n]*\n(.*?)^```$")
	indented = regexp.MustCompile(`(?m)(?:\n\n|\A)((?: {4}.*\n)+)`)
	goCode   = regexp.MustCompile(`(?m):= |^\s*(func|if|for|package|import|type|var) .*[{(]$`)
	folders  = regexp.MustCompile(`\bgo (?:run|test|vet|build) (?:-[\w.]+(?:[= ][^-.\s]\S*)? )*(\./[\w./-]*)`)
	targets  = regexp.MustCompile("(?m)(?:^ {4}|`|; )make ([a-z-]+)")
)

// documents returns the texts of README, CONTRIBUTING and docs, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	paths := testutil.Get[[]string](t)(filepath.Glob(filepath.Join(root, "docs", "*.md")))
	texts := map[string]string{}
	for _, path := range append(paths, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		texts[testutil.Get[string](t)(filepath.Rel(root, path))] = string(testutil.Get[[]byte](t)(os.ReadFile(path)))
	}
	return texts
}

// Go code in documents stands in fenced blocks, and each document that has some is compared by a
// test with files that are compiled and run.
func TestCodeIsTested(t *testing.T) {
	tested := map[string]bool{"README.md": true} // by TestProgram
	testutil.Do(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "code_test.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?:CheckDocument\(t, "[./]*|root \+ "/|page += "[./]*)(docs/[\w-]+\.md)"`).FindAllStringSubmatch(string(text), -1) {
			tested[m[1]] = true
		}
		return err
	}))
	for path, text := range documents(t) {
		languages := []string{}
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			languages = append(languages, block[1])
		}
		if slices.Contains(languages, "go") && !tested[path] {
			t.Errorf("%s has Go code that no test compares with files that are compiled: call testutil.CheckDocument", path)
		}
		if path == "README.md" && slices.Index(languages, "go") != len(languages)-2 {
			t.Errorf("README.md has the blocks %q, want one of Go, and its output", languages)
		}
		for _, block := range indented.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if goCode.MatchString(block[1]) {
				t.Errorf("%s has Go code in an indented block, which no test looks at:\n%s", path, block[1])
			}
		}
	}
}

// The folders of commands in documents are there, and the targets of make.
func TestCommandsAreThere(t *testing.T) {
	makefile := string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "Makefile"))))
	commands := 0
	for path, text := range documents(t) {
		for _, m := range folders.FindAllStringSubmatch(text, -1) {
			commands++
			folder := strings.TrimSuffix(strings.TrimSuffix(m[1], "..."), "/")
			if _, err := os.Stat(filepath.Join("..", "..", folder)); err != nil {
				t.Errorf("%s: %s: %v", path, m[0], err)
			}
		}
		for _, m := range targets.FindAllStringSubmatch(text, -1) {
			commands++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: there is no target %q in the Makefile", path, m[1])
			}
		}
	}
	if commands < 20 {
		t.Errorf("found %d commands, want 20 at least", commands)
	}
}
