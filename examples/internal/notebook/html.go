package notebook

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
)

// maxPage is the most bytes that a page may have.
const maxPage = 2_000_000

//go:embed page.html
var pageHTML string

// blocks are the parts that a page is made of.
var blocks = template.Must(template.New("").Parse(pageHTML))

// add adds a block to the page. An error is kept for the end.
func (p *Page) add(block string, data any) {
	if err := blocks.ExecuteTemplate(&p.body, block, data); err != nil && p.failed == nil {
		p.failed = fmt.Errorf("page: %w", err)
	}
}

// save writes the page: one file that needs no other and no script.
func (p *Page) save() error {
	m, err := modes()
	if p.failed != nil {
		err = p.failed
	}
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := blocks.ExecuteTemplate(&b, "page", map[string]any{"Title": p.title, "Modes": m, "Body": template.HTML(p.body.String())}); err != nil {
		return err
	}
	if b.Len() > maxPage {
		return fmt.Errorf("page %s would have %d bytes, want at most %d", p.options.HTML, b.Len(), maxPage)
	}
	if err := os.MkdirAll(filepath.Dir(p.options.HTML), 0o755); err != nil {
		return err
	}
	return os.WriteFile(p.options.HTML, b.Bytes(), 0o644)
}

// A mode is light or dark: its colours, and how code looks in it.
type mode struct {
	Name    string
	Colours []struct{ Name, Value template.CSS }
	Code    template.CSS
}

func modes() ([]mode, error) {
	list := []mode{{Name: "light"}, {Name: "dark"}}
	for i, code := range []string{"github", "github-dark"} {
		for _, c := range theme {
			value := template.CSS(hex([]color.RGBA{c.light, c.dark}[i]))
			list[i].Colours = append(list[i].Colours, struct{ Name, Value template.CSS }{template.CSS(c.name), value})
		}
		var css strings.Builder
		if err := formatter.WriteCSS(&css, styles.Get(code)); err != nil {
			return nil, err
		}
		list[i].Code = template.CSS(css.String())
	}
	return list, nil
}

// A span is a piece of a text: plain, code, or a link.
type span struct {
	Text, URL string
	Code      bool
}

var inline = regexp.MustCompile("`([^`]+)`" + `|\[([^\]]+)\]\(([^)\s]+)\)`)

// spans finds `code` and [text](link) in a text.
func spans(text string) (list []span) {
	at := 0
	for _, m := range append(inline.FindAllStringSubmatchIndex(text, -1), []int{len(text), len(text)}) {
		if at < m[0] {
			list = append(list, span{Text: typeset(text[at:m[0]])})
		}
		if at = m[1]; len(m) == 2 {
			break
		}
		if m[2] >= 0 {
			list = append(list, span{Text: text[m[2]:m[3]], Code: true})
		} else {
			list = append(list, span{Text: text[m[4]:m[5]], URL: text[m[6]:m[7]]})
		}
	}
	return list
}

var formatter = chromahtml.New(chromahtml.WithClasses(true), chromahtml.PreventSurroundingPre(true))

// cuda is the language of the kernels: C++ and what CUDA adds.
var cuda = chroma.TypeRemappingLexer(lexers.Get("c++"), chroma.TypeMapping{
	{From: chroma.Name, To: chroma.Keyword, Words: strings.Fields("__global__ __device__ __host__ __shared__ __constant__ __forceinline__ __restrict__ __launch_bounds__ __noinline__")},
	{From: chroma.Name, To: chroma.NameBuiltin, Words: strings.Fields("threadIdx blockIdx blockDim gridDim __syncthreads __syncwarp __threadfence")},
})

// highlight is code in HTML, with the classes of its tokens.
func highlight(lexer chroma.Lexer, code string) (template.HTML, error) {
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = formatter.Format(&b, styles.Get("github"), tokens)
	return template.HTML(b.String()), err
}

// number is how a number begins, or an empty cell, but not the name of a numbered
// thing such as 3: shared tile.
var number = regexp.MustCompile(`^([-+−]?[0-9.]+([^0-9.:]|$)|-$|$)`)

// numeric says which columns have numbers only, with units perhaps.
func (t Table) numeric() []bool {
	is := make([]bool, t.columns())
	for c := range is {
		is[c] = len(t.Rows) > 0
		for _, row := range t.Rows {
			is[c] = is[c] && (c >= len(row) || number.MatchString(row[c]))
		}
	}
	return is
}

func (t Table) columns() int {
	n := len(t.Header)
	for _, row := range t.Rows {
		n = max(n, len(row))
	}
	return n
}

// html is what the template of a table takes.
func (t Table) html() any {
	type cell struct {
		Spans  []span
		Number bool
	}
	numeric, rows := t.numeric(), make([][]cell, 1+len(t.Rows))
	for r, row := range append([][]string{t.Header}, t.Rows...) {
		for c, s := range row {
			rows[r] = append(rows[r], cell{spans(s), numeric[c]})
		}
	}
	return map[string]any{"Caption": spans(t.Caption), "Header": rows[0], "Rows": rows[1:]}
}
