package notebook

import (
	"bytes"
	_ "embed"
	"html/template"
	"os"
	"path/filepath"
	"regexp"

	"github.com/stheno-ml/stheno/internal/figure"
)

// maxPage is the most bytes that a page may have.
const maxPage = 2_000_000

//go:embed page.html
var pageHTML string

// blocks are the parts that a page is made of.
var blocks = template.Must(template.New("").Parse(pageHTML))

// add adds a block to the page.
func (p *Page) add(block string, data any) { Check(blocks.ExecuteTemplate(&p.body, block, data)) }

// save writes the page: one file that needs no other and no script.
func (p *Page) save() {
	var b bytes.Buffer
	Check(blocks.ExecuteTemplate(&b, "page", map[string]any{"Title": p.title, "Style": Must(figure.Style()), "Body": template.HTML(p.body.String())}))
	if b.Len() > maxPage {
		Fail("page %s would have %d bytes, want at most %d", p.options.HTML, b.Len(), maxPage)
	}
	Check(os.MkdirAll(filepath.Dir(p.options.HTML), 0o755))
	Check(os.WriteFile(p.options.HTML, b.Bytes(), 0o644))
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
			list = append(list, span{Text: figure.Typeset(text[at:m[0]])})
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

// tableHTML is the data of a table's template.
func tableHTML(t figure.Table) any {
	type cell struct {
		Spans  []span
		Number bool
	}
	numeric, rows := t.Numeric(), make([][]cell, 1+len(t.Rows))
	for r, row := range append([][]string{t.Header}, t.Rows...) {
		for c, s := range row {
			rows[r] = append(rows[r], cell{spans(s), numeric[c]})
		}
	}
	return map[string]any{"Caption": spans(t.Caption), "Header": rows[0], "Rows": rows[1:]}
}
