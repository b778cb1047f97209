package main

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTablesAreCurrent(t *testing.T) {
	pages, err := updated(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) != 2 {
		t.Errorf("%d pages, want 2", len(pages))
	}
	for path, want := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want {
			t.Errorf("%s: a table differs from the one that packages opspec and coverage make: run `make readme`", path)
		}
	}
}

// The program in the README is the text that a reader pastes: it must build,
// run, and print the output in the README.
func TestProgram(t *testing.T) {
	_, rest, _ := strings.Cut(readme(t), "```go\n")
	program, rest, _ := strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "```text\n")
	want, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("README.md: want a ```go block followed by a ```text block")
	}
	if formatted, err := format.Source([]byte(program)); err != nil || string(formatted) != program {
		t.Errorf("README.md: the program is not as gofmt writes it (%v)", err)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	run := exec.Command("go", "run", file)
	run.Dir, run.Stderr = "../..", &stderr
	got, err := run.Output()
	if err != nil {
		t.Fatalf("the program fails: %v\n%s", err, stderr.String())
	}
	if string(got) != want {
		t.Errorf("the program prints\n%swant\n%s", got, want)
	}
}

func TestReplace(t *testing.T) {
	const text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n"
	got, err := replace(text, "x", "new\n")
	if want := strings.Replace(text, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, bad := range []string{"", "<!-- x:begin -->\n", "<!-- x:end -->\n<!-- x:begin -->\n"} {
		if got, err := replace(bad, "x", ""); err == nil {
			t.Errorf("replace in %q gives %q, want an error", bad, got)
		}
	}
}
