package manifest

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// SourceHash is a hash of the code of a source and of every header that it includes in quotes, by base name, headers of headers too, each with its
// name. Comments and blank lines do not count, as they do not change the images: flags ask for no line numbers in them, and only a source that uses
// __LINE__ or assert puts them there.
func SourceHash(read func(name string) ([]byte, error), name string) (string, error) {
	var all bytes.Buffer
	if err := addSource(&all, read, name, map[string]bool{}); err != nil {
		return "", err
	}
	return Sum(all.Bytes()), nil
}

var include = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"`)

func addSource(all *bytes.Buffer, read func(string) ([]byte, error), name string, seen map[string]bool) error {
	if seen[name] {
		return nil
	}
	seen[name] = true
	text, err := read(name)
	if err != nil {
		return err
	}
	text = code(text)
	fmt.Fprintf(all, "%s %d\n", name, len(text))
	all.Write(text)
	for _, m := range include.FindAllSubmatch(text, -1) {
		if err := addSource(all, read, path.Base(string(m[1])), seen); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

var targetsLine, testsLine = regexp.MustCompile(`(?m)^//stheno:targets (.*)$`), regexp.MustCompile(`(?m)^//stheno:tests (.*)$`)

// StoredTargets returns the targets whose images of a source are stored: all, or those of a line such as
//
//	//stheno:targets sm_90a ptx
//
// in its text. Plans launch no kernel of the source on devices of the others. PTX, which describes the arguments of kernels, is always one.
//
// A second line, such as
//
//	//stheno:tests sm_90a
//
// names those of the stored targets on whose devices plans launch none either, but tests do, with plans for older devices.
func StoredTargets(text []byte) (stored, tests []string, err error) {
	stored = Targets
	if line := targetsLine.FindSubmatch(text); line != nil {
		if stored = strings.Fields(string(line[1])); !Subset(stored) {
			return nil, nil, fmt.Errorf("got %q, want some of %v in this order, %s among them", line[0], Targets, PTX)
		}
	}
	if line := testsLine.FindSubmatch(text); line != nil {
		if tests = strings.Fields(string(line[1])); slices.Contains(tests, PTX) || !subset(tests, stored) {
			return nil, nil, fmt.Errorf("got %q, want some of %v in this order, %s not among them", line[0], stored, PTX)
		}
	}
	return stored, tests, nil
}

// token matches a piece that function code takes or leaves as a whole. Its groups: blanks and comments; the beginning of a raw string, and its
// delimiter, with which the string ends, too. Pieces without a group may contain quotes and slashes that begin nothing: strings, characters, and
// names and numbers, since R"( begins a raw string only where no name ends with R, and quotes group the digits of numbers.
var token = regexp.MustCompile(`((?:[ \t]|//(?:[^\\\n]|\\\r?\n|\\)*|/\*(?s:.*?)\*/)+)|` +
	`((?:u8|[uUL])?R"([^()\\\s]*)\()|` +
	`"(?:[^"\\\n]|\\(?s:.))*"?|'(?:[^'\\\n]|\\(?s:.))*'?|` +
	`[A-Za-z_][A-Za-z_0-9]*|\.?[0-9](?:'?[A-Za-z_0-9.])*`)

// code returns a text of CUDA C++ without comments and blank lines: a blank in place of blanks and comments in a line, none at its ends.
func code(text []byte) []byte {
	var kept []byte
	for {
		m := token.FindSubmatchIndex(text)
		if m == nil {
			break
		}
		start, end := m[0], m[1]
		kept = append(kept, text[:start]...)
		if m[4] >= 0 {
			closing := fmt.Sprintf(")%s\"", text[m[6]:m[7]])
			if i := bytes.Index(text[end:], []byte(closing)); i >= 0 {
				end += i + len(closing)
			}
		}
		switch piece := text[start:end]; {
		case m[2] >= 0:
			kept = append(kept, ' ')
		case bytes.ContainsRune(piece, '\n'): // a literal, in which blanks count
			kept = strconv.AppendQuote(kept, string(piece))
		default:
			kept = append(kept, piece...)
		}
		text = text[end:]
	}
	kept = append(kept, text...)
	var lines []byte
	goesOn := false // the line before ends with a backslash: a blank line ends its macro
	for line := range bytes.Lines(kept) {
		if line = bytes.TrimSpace(line); len(line) > 0 || goesOn {
			lines = append(append(lines, line...), '\n')
		}
		goesOn = bytes.HasSuffix(line, []byte{'\\'})
	}
	return lines
}
