package main

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"unicode"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	markdownhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// converter is GitHub's Markdown, whose comments stay, such as the markers of generated tables.
var converter = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(markdownhtml.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(codeBlocks{}, 100))),
)

// markdown returns a document as HTML.
func (b *builder) markdown(name string, source []byte) (template.HTML, error) {
	document := converter.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	err := ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var destination *[]byte
		switch n := n.(type) {
		case *ast.Link:
			destination = &n.Destination
		case *ast.Image:
			if destination = &n.Destination; !n.HasChildren() {
				return ast.WalkStop, fmt.Errorf("the picture %s has no words for those who do not see it", n.Destination)
			}
		default:
			return ast.WalkContinue, nil
		}
		link, err := b.resolve(name, string(*destination))
		*destination = []byte(link)
		return ast.WalkContinue, err
	})
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := converter.Renderer().Render(&out, source, document); err != nil {
		return "", err
	}
	// A table that is too wide for the window scrolls alone. (In code < is written as &lt;.)
	tables := strings.NewReplacer("<table>", `<div class="table" tabindex="0"><table>`, "</table>", "</table></div>")
	return template.HTML(tables.Replace(out.String())), nil
}

// anchors adds the anchors to headings that GitHub makes.
type anchors map[string]bool

// Generate implements parser.IDs.
func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(value)))
	free := name
	for i := 1; a[free]; i++ {
		free = fmt.Sprint(name, "-", i)
	}
	a[free] = true
	return []byte(free)
}

// Put implements parser.IDs.
func (a anchors) Put(value []byte) { a[string(value)] = true }

// codeBlocks renders blocks of code: coloured, with the name of a file if the block begins with
// its language and that name.
type codeBlocks struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (codeBlocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindCodeBlock, renderCode)
	r.Register(ast.KindFencedCodeBlock, renderCode)
}

func renderCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkSkipChildren, nil
	}
	var code bytes.Buffer
	for i := range node.Lines().Len() {
		line := node.Lines().At(i)
		code.Write(line.Value(source))
	}
	var info []string
	if fenced, ok := node.(*ast.FencedCodeBlock); ok && fenced.Info != nil {
		info = strings.Fields(string(fenced.Info.Segment.Value(source)))
	}
	lexer, err := lexerOf(info)
	if err != nil {
		return ast.WalkStop, err
	}
	file := ""
	if len(info) > 1 {
		file = info[1]
	}
	text, err := block(lexer, code.String(), file)
	_, failed := w.Write(text)
	return ast.WalkSkipChildren, errors.Join(err, failed)
}

// lexerOf returns the lexer for the language of a block, nil for none.
func lexerOf(info []string) (chroma.Lexer, error) {
	switch {
	case len(info) == 0 || info[0] == "text":
		return nil, nil
	case info[0] == "cuda":
		return figure.CUDA(), nil
	case slices.Contains([]string{"go", "sh", "yaml"}, info[0]):
		return lexers.Get(info[0]), nil
	}
	return nil, fmt.Errorf("got a block in the language %q, want go, sh, yaml, cuda or text", info[0])
}
