// Package jsonlines writes JSON that reads well in a diff: one record a line.
package jsonlines

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// Marshal encodes v as encoding/json does, fields in their order and the keys of
// maps sorted. Objects and arrays down to the given depth have one member a
// line; deeper values stay on their member's line. For a depth of 2, a struct
// with a slice of records has one record a line. The text ends with a line break.
func Marshal(v any, depth int) ([]byte, error) {
	var compact bytes.Buffer
	e := json.NewEncoder(&compact)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return lay(compact.Bytes(), depth), nil
}

// Write writes Marshal's text to a file, whose folder it makes.
func Write(path string, v any, depth int) error {
	text, err := Marshal(v, depth)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o666)
}

// lay adds spaces and line breaks to JSON that has none.
func lay(compact []byte, depth int) []byte {
	var out []byte
	level, quoted := 0, false
	line := func() {
		out = append(out, '\n')
		for range level {
			out = append(out, ' ')
		}
	}
	for i, c := range compact {
		if quoted {
			out = append(out, c)
			quoted = c != '"' || escaped(compact[:i])
			continue
		}
		switch c {
		case '{', '[':
			level++
			out = append(out, c)
			if level <= depth && compact[i+1] != c+2 { // not empty: '}' and ']' come two after
				line()
			}
		case '}', ']':
			level--
			if level < depth && compact[i-1] != c-2 {
				line()
			}
			out = append(out, c)
		case ',':
			out = append(out, c)
			if level <= depth {
				line()
			} else {
				out = append(out, ' ')
			}
		case ':':
			out = append(out, ':', ' ')
		default:
			quoted = c == '"'
			out = append(out, c)
		}
	}
	return out
}

// escaped reports whether the character after the text is escaped: whether the text ends in an odd
// number of backslashes.
func escaped(text []byte) bool {
	return (len(text)-len(bytes.TrimRight(text, `\`)))%2 == 1
}
