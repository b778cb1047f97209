package manifest

import (
	"errors"
	"strings"
	"testing"
)

// Comments and blanks go, wherever they stand; text that only looks like a comment stays.
func TestCode(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"// all of it":                     "",
		"a; // c\n\n  \n// c\n\tb;\r\n":    "a;\nb;\n",
		"f(a, /* n = */ 1) /* c\nd */ + 2": "f(a, 1) + 2\n",
		"a/**/b":                           "a b\n",
		"a /* // */ b // /*\nc */ d":       "a b\nc */ d\n",
		"a // c \\\n still c\nb":           "a\nb\n",
		"a // c \\ d\nb":                   "a\nb\n",
		"a / b / c * d":                    "a / b / c * d\n",
		`"// s" '"' // c`:                  `"// s" '"'` + "\n",
		`"\"// s\\" // c`:                  `"\"// s\\"` + "\n",
		`'\'' "/*" // */`:                  `'\'' "/*"` + "\n",
		"1'000'000 // c's":                 "1'000'000\n",
		"0xFF'FFu / 1.5e3f // c":           "0xFF'FFu / 1.5e3f\n",
		"#error don't // c\nb // '":        "#error don't // c\nb\n", // a comment that is kept is harmless
		"#define A \\\n  // c\nb":          "#define A \\\n\nb\n",
		"#define A \\\n\nb":                "#define A \\\n\nb\n",
		"#define A \\\nb":                  "#define A \\\nb\n",
		"R\"(// a)\" // b":                 "R\"(// a)\"\n",
		`LR"x( )" // a)x" // b`:            `LR"x( )" // a)x"` + "\n",
		`R"(" // open`:                     `R"(" // open` + "\n",
		`FOOR"(" // c`:                     `FOOR"("` + "\n",
		"a /* open":                        "a /* open\n",
		`"open // s` + "\n// c":            `"open // s` + "\n",
	} {
		if got := string(code([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if a, b := code([]byte("R\"(a\n\nb)\"")), code([]byte("R\"(a\nb)\"")); string(a) == string(b) {
		t.Errorf("a blank line in a raw string does not count: %q", a)
	}
}

// The hash follows the code of a source and of its headers, each of which counts once.
func TestSourceHash(t *testing.T) {
	hash := func(files map[string]string) string {
		t.Helper()
		read := func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, errors.New("no file " + name)
		}
		h, err := SourceHash(read, "a.cu")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	files := func() map[string]string {
		return map[string]string{
			"a.cu":  "// A.\n#include \"b.cuh\"\n#include \"sub/c.cuh\"\nint a;\n",
			"b.cuh": "// B.\n#include \"sub/c.cuh\"\nint b;\n",
			"c.cuh": "#include \"b.cuh\"\nint c; // C.\n",
		}
	}
	was := hash(files())
	for name := range files() {
		same, other := files(), files()
		same[name] = "/* New. */\n\n" + strings.ReplaceAll(strings.ReplaceAll(same[name], ".\n", ", new.\n\n"), ";", "; // new")
		if hash(same) != was {
			t.Errorf("another comment in %s gives another hash", name)
		}
		other[name] += "int d;\n"
		if hash(other) == was {
			t.Errorf("other code in %s gives the same hash", name)
		}
	}
	commented := files()
	commented["a.cu"] = "/*\n#include \"gone.cuh\"\n*/\n" + commented["a.cu"]
	if hash(commented) != was {
		t.Error("a header that a comment names is read")
	}
}
