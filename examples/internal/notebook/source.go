package notebook

import (
	"fmt"
	"regexp"
	"strings"
)

// definition finds the function, struct or macro of a name in a CUDA source,
// with the comment right above it; all of them, where there are several.
func definition(text, name string) (string, error) {
	quoted := regexp.QuoteMeta(name)
	macro := regexp.MustCompile(`(?m)^#define\s+` + quoted + `\b`)
	named := regexp.MustCompile(`\b` + quoted + `\s*\(|\b(struct|class|union)\s+` + quoted + `\b`)
	var found []string
	for _, item := range items(text) {
		code := strings.TrimSpace(blank(item))
		if macro.MatchString(code) {
			found = append(found, item)
			continue
		}
		head, _, body := strings.Cut(code, "{")
		if body && !strings.HasPrefix(code, "#") && named.MatchString(head) {
			found = append(found, item)
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no function, struct or macro %q", name)
	}
	return strings.Join(found, "\n\n"), nil
}

// macroUse is a macro that makes a definition, on a line of its own without a
// semicolon.
var macroUse = regexp.MustCompile(`^[A-Z][A-Z0-9_]*\([^;{]*\)$`)

// items cuts a source into its top-level definitions and preprocessor lines,
// each with the comment right above it.
func items(text string) []string {
	code := blank(text)
	var out []string
	start, depth := 0, 0
	end := func(at int) {
		item := strings.TrimSpace(text[start:at])
		// A paragraph of comment with a blank line between it and the code does not belong to the
		// code.
		for {
			first, rest, ok := strings.Cut(item, "\n\n")
			if !ok || strings.TrimSpace(blank(first)) != "" {
				break
			}
			item = strings.TrimSpace(rest)
		}
		if item != "" {
			out = append(out, item)
		}
		start = at
	}
	for i := 0; i < len(code); i++ {
		switch c := code[i]; {
		case c == '#' && depth == 0 && strings.TrimSpace(code[start:i]) == "":
			for i < len(code) && (code[i] != '\n' || code[i-1] == '\\') {
				i++
			}
			end(i)
		case c == '{':
			// Definitions inside of extern "C" { } and of a namespace are top-level too.
			head := strings.TrimSpace(code[start:i])
			if depth == 0 && (head == "extern" || strings.HasPrefix(head, "namespace")) {
				start = i + 1
				continue
			}
			depth++
		case c == '}' && depth == 0:
			start = i + 1 // of such a block
		case c == '}':
			if depth--; depth > 0 {
				break
			}
			if j := i + 1 + len(code[i+1:]) - len(strings.TrimLeft(code[i+1:], " ")); j < len(code) && code[j] == ';' {
				i = j
			}
			end(i + 1)
		case c == ';' && depth == 0, c == '\n' && depth == 0 && macroUse.MatchString(strings.TrimSpace(code[start:i])):
			end(i + 1)
		}
	}
	return out
}

var notCode = regexp.MustCompile(`//[^\n]*|(?s:/\*.*?\*/)|"(?:[^"\\\n]|\\.)*"`)

// blank overwrites comments and strings with spaces, byte for byte, line ends
// aside.
func blank(text string) string {
	return notCode.ReplaceAllStringFunc(text, func(s string) string {
		b := []byte(s)
		for i, c := range b {
			if c != '\n' {
				b[i] = ' '
			}
		}
		return string(b)
	})
}
