package notebook

import (
	"encoding/base64"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxPage is the most bytes that a page may have.
const maxPage = 2_000_000

const style = `
:root { color-scheme: light dark; --ink: #1f242b; --muted: #5c6570; --rule: #dfe3e8; --paper: #fff; --code: #f5f7f9; --key: #1f5fa8; --link: #1f5fa8; --note: #fff6e0 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --muted: #a3adb8; --rule: #39424d; --paper: #14181d; --code: #1d232a; --key: #7db4ee; --link: #7db4ee; --note: #2e2710 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 57rem; background: var(--paper); color: var(--ink); font: 1.05rem/1.6 system-ui, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 1rem 0 .5rem }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 2.8rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--rule) }
a { color: var(--link) }
.where, figcaption, caption { color: var(--muted); font-size: .92rem }
.note { border-left: 4px solid #d97a06; background: var(--note); padding: .5rem .9rem; font-size: .95rem }
code, pre { font-family: ui-monospace, Consolas, monospace }
code { background: var(--code); padding: .1em .3em; border-radius: .25em; font-size: .9em }
pre { background: var(--code); padding: .9rem 1rem; margin: .3rem 0; overflow-x: auto; border-radius: .4rem; font-size: .82rem; line-height: 1.45 }
pre i { color: var(--muted); font-style: normal }
pre b { color: var(--key); font-weight: normal }
figure { margin: 1.4rem 0 }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: .4rem; margin-bottom: .4rem }
.table { overflow-x: auto; margin: 1.4rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem }
caption { text-align: left; padding-bottom: .4rem }
th, td { padding: .35rem .8rem .35rem 0; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top }
th + th, td + td { padding-left: .8rem }
.n { text-align: right; white-space: nowrap }
`

// save writes the page: one file that needs no other and no script.
func (p *Page) save() error {
	page := fmt.Sprintf("<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width, initial-scale=1\">\n<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n%s</body>\n</html>\n",
		html.EscapeString(p.title), style, p.body.String())
	if len(page) > maxPage {
		return fmt.Errorf("page %s would have %d bytes, want at most %d", p.options.HTML, len(page), maxPage)
	}
	if err := os.MkdirAll(filepath.Dir(p.options.HTML), 0o755); err != nil {
		return err
	}
	return os.WriteFile(p.options.HTML, []byte(page), 0o644)
}

var inline = regexp.MustCompile("`[^`]+`" + `|\[[^\]]+\]\([^)\s]+\)`)

// markup turns `code` and [text](link) into HTML and escapes the rest.
func markup(text string) string {
	var b strings.Builder
	at := 0
	for _, m := range inline.FindAllStringIndex(text, -1) {
		b.WriteString(html.EscapeString(text[at:m[0]]))
		part := text[m[0]:m[1]]
		if code, ok := strings.CutPrefix(part, "`"); ok {
			fmt.Fprintf(&b, "<code>%s</code>", html.EscapeString(strings.TrimSuffix(code, "`")))
		} else {
			name, url, _ := strings.Cut(part[1:len(part)-1], "](")
			fmt.Fprintf(&b, `<a href="%s">%s</a>`, html.EscapeString(url), html.EscapeString(name))
		}
		at = m[1]
	}
	return b.String() + html.EscapeString(text[at:])
}

var tokens = regexp.MustCompile(`//[^\n]*|(?s:/\*.*?\*/)|"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*`)

// keywords of CUDA C++ and of Go.
var keywords = regexp.MustCompile(`^(__\w+__|alignas|auto|bool|break|case|char|class|const|constexpr|continue|default|defer|do|double|else|extern|float|for|func|go|if|import|inline|int|interface|long|map|namespace|package|range|reinterpret_cast|return|short|sizeof|static|static_assert|static_cast|struct|switch|template|type|typename|unsigned|using|var|void|volatile|while|__syncthreads|__syncwarp|__threadfence|threadIdx|blockIdx|blockDim|gridDim|error|string|float32|float64)$`)

// highlight marks comments and keywords of escaped code.
func highlight(code string) string {
	var b strings.Builder
	at := 0
	for _, m := range tokens.FindAllStringIndex(code, -1) {
		b.WriteString(html.EscapeString(code[at:m[0]]))
		part := html.EscapeString(code[m[0]:m[1]])
		switch {
		case code[m[0]] == '/':
			part = "<i>" + part + "</i>"
		case keywords.MatchString(code[m[0]:m[1]]):
			part = "<b>" + part + "</b>"
		}
		b.WriteString(part)
		at = m[1]
	}
	return b.String() + html.EscapeString(code[at:])
}

func figureHTML(name, caption string, png []byte) string {
	return fmt.Sprintf("<figure id=%q><img alt=%q src=\"data:image/png;base64,%s\"><figcaption>%s</figcaption></figure>\n",
		name, html.EscapeString(caption), base64.StdEncoding.EncodeToString(png), markup(caption))
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

func (t Table) html() string {
	var b strings.Builder
	numeric := t.numeric()
	row := func(tag string, cells []string) {
		b.WriteString("<tr>")
		for c, cell := range cells {
			class := ""
			if numeric[c] {
				class = " class=n"
			}
			fmt.Fprintf(&b, "<%s%s>%s</%s>", tag, class, markup(cell), tag)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("<div class=table><table>\n")
	if t.Caption != "" {
		fmt.Fprintf(&b, "<caption>%s</caption>\n", markup(t.Caption))
	}
	row("th", t.Header)
	for _, cells := range t.Rows {
		row("td", cells)
	}
	b.WriteString("</table></div>\n")
	return b.String()
}

// text is the table for a terminal.
func (t Table) text() string {
	var b strings.Builder
	numeric := t.numeric()
	width := make([]int, t.columns())
	rows := append([][]string{t.Header}, t.Rows...)
	for _, row := range rows {
		for c, cell := range row {
			width[c] = max(width[c], utf8.RuneCountInString(cell))
		}
	}
	if t.Caption != "" {
		fmt.Fprintln(&b, wrap(t.Caption, 100))
	}
	for _, row := range rows {
		line := " "
		for c, cell := range row {
			pad := strings.Repeat(" ", width[c]-utf8.RuneCountInString(cell))
			if numeric[c] {
				line += " " + pad + cell + " "
			} else {
				line += " " + cell + pad + " "
			}
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	return b.String()
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
