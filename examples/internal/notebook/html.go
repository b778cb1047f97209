package notebook

import (
	"bytes"
	"fmt"
	"html/template"
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

// blocks are the parts that a page is made of. A text is a list of spans.
var blocks = template.Must(template.New("").Parse(`
{{- define "text"}}{{range .}}{{if .URL}}<a href="{{.URL}}">{{.Text}}</a>{{else if .Code}}<code>{{.Text}}</code>{{else}}{{.Text}}{{end}}{{end}}{{end -}}
{{define "title"}}<h1>{{template "text" .Title}}</h1>
<p class="where">{{template "text" .Where}}. Made on {{.Date}}.</p>
{{end -}}
{{define "heading"}}<h2>{{template "text" .}}</h2>
{{end -}}
{{define "paragraph"}}<p>{{template "text" .}}</p>
{{end -}}
{{define "note"}}<p class="note">{{template "text" .}}</p>
{{end -}}
{{define "code"}}<figure class="code">{{with .Caption}}<figcaption>{{template "text" .}}</figcaption>{{end}}<pre class="chroma" tabindex="0">{{.Code}}</pre></figure>
{{end -}}
{{define "figure"}}<figure id="{{.Name}}"><div class="{{if .Alone}}alone{{else}}panels{{end}}">{{range .Drawings}}
{{.}}{{end}}</div><figcaption>{{template "text" .Caption}}</figcaption></figure>
{{end -}}
{{define "table"}}<div class="table" tabindex="0"><table>
{{with .Caption}}<caption>{{template "text" .}}</caption>
{{end}}<tr>{{range .Header}}{{if .Number}}<th class="n">{{else}}<th>{{end}}{{template "text" .Spans}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}{{if .Number}}<td class="n">{{else}}<td>{{end}}{{template "text" .Spans}}</td>{{end}}</tr>
{{end}}</table></div>
{{end -}}
{{define "page"}}<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>{{.Style}}</style>
</head>
<body>
{{.Body}}</body>
</html>
{{end}}`))

const sheet = `
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 57rem; background: var(--paper); color: var(--ink); font: 1.05rem/1.6 system-ui, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 1rem 0 .5rem }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 2.8rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--rule) }
a { color: var(--blue) }
.where, figcaption, caption { color: var(--muted); font-size: .92rem }
.note { border-left: 4px solid var(--amber); background: var(--note); padding: .5rem .9rem; font-size: .95rem }
code, pre { font-family: ui-monospace, Consolas, monospace }
code { background: var(--code); padding: .1em .3em; border-radius: .25em; font-size: .9em }
pre, pre.chroma { background: var(--code); padding: .9rem 1rem; margin: .3rem 0; overflow-x: auto; border-radius: .4rem; font-size: .82rem; line-height: 1.45 }
figure { margin: 1.4rem 0 }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1.5rem; align-items: start }
.panels, .alone { margin-bottom: .5rem }
.chroma .err { color: inherit; background: none }
svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font-family: "Liberation Sans", Arial, Helvetica, Arimo, sans-serif }
svg image { image-rendering: pixelated }
svg.narrow { display: none }
@media (max-width: 38rem) { svg.wide { display: none } svg.narrow { display: block } }
.table { overflow-x: auto; margin: 1.4rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem }
caption { text-align: left; padding-bottom: .4rem }
th, td { padding: .35rem .8rem .35rem 0; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top }
th + th, td + td { padding-left: .8rem }
th { vertical-align: bottom }
.n { text-align: right }
td.n { white-space: nowrap }
td:first-child { min-width: 7rem }
`

// styleSheet is the style of a page, with the colours of both modes.
func styleSheet() (template.CSS, error) {
	var b strings.Builder
	for _, mode := range []struct{ name, rest, code string }{
		{"light", "--code: #f5f7f9; --note: #fff6e0", "github"},
		{"dark", "--code: #1d232a; --note: #2e2710", "github-dark"},
	} {
		fmt.Fprintf(&b, "\n@media (prefers-color-scheme: %s) {\n:root { color-scheme: %[1]s; %s%s }\n", mode.name, variables(mode.name == "dark"), mode.rest)
		if err := formatter.WriteCSS(&b, styles.Get(mode.code)); err != nil {
			return "", err
		}
		b.WriteString("}\n")
	}
	return template.CSS(b.String() + sheet), nil
}

// add adds a block to the page. An error is kept for the end.
func (p *Page) add(block string, data any) {
	if err := blocks.ExecuteTemplate(&p.body, block, data); err != nil && p.failed == nil {
		p.failed = fmt.Errorf("page: %w", err)
	}
}

// save writes the page: one file that needs no other and no script.
func (p *Page) save() error {
	css, err := styleSheet()
	if err == nil {
		err = p.failed
	}
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := blocks.ExecuteTemplate(&b, "page", map[string]any{"Title": p.title, "Style": css, "Body": template.HTML(p.body.String())}); err != nil {
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

// A span is a piece of a text: plain, code, or a link.
type span struct {
	Text, URL string
	Code      bool
}

var inline = regexp.MustCompile("`[^`]+`" + `|\[[^\]]+\]\([^)\s]+\)`)

// spans finds `code` and [text](link) in a text.
func spans(text string) (list []span) {
	plain := func(s string) {
		if s != "" {
			list = append(list, span{Text: typeset(s)})
		}
	}
	at := 0
	for _, m := range inline.FindAllStringIndex(text, -1) {
		plain(text[at:m[0]])
		part := text[m[0]:m[1]]
		if code, ok := strings.CutPrefix(part, "`"); ok {
			list = append(list, span{Text: strings.TrimSuffix(code, "`"), Code: true})
		} else {
			name, url, _ := strings.Cut(part[1:len(part)-1], "](")
			list = append(list, span{Text: name, URL: url})
		}
		at = m[1]
	}
	plain(text[at:])
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

// html is what the template of a table takes: its rows, the header first.
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
