package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/stheno-ml/stheno/internal/figure"
)

// A section is a group of pages in the navigation, by their paths in the repository.
type section struct {
	title string
	pages []string
}

// sections are the navigation; the gallery comes after them, if `make gallery` has built it.
var sections = []section{
	{"Start", []string{"README.md", "examples/README.md", "docs/port-your-program.md", "docs/from-pytorch.md", "docs/write-your-own-kernel.md"}},
	{"Use", []string{"docs/nn.md", "docs/running.md", "docs/training.md", "docs/several-gpus.md", "docs/precision.md", "docs/host.md", "docs/environment.md", "docs/renamed.md"}},
	{"Gorgonia's programs", []string{"docs/gorgonia-ops.md", "docs/conformance.md", "docs/cuda-tag.md", "docs/cuda-versions.md"}},
	{"Speed and accuracy", []string{"docs/speed.md", "docs/graphs.md", "docs/drawn.md", "docs/functions.md"}},
	{"Inside", []string{"docs/architecture.md", "CONTRIBUTING.md"}},
}

const gallery = "docs/gallery/*.html"

// sources is where links to files and folders of the source tree lead.
const sources = "https://github.com/stheno-ml/stheno/blob/main/"

// A builder makes the pages of a repository.
type builder struct {
	repository fs.FS
	files      map[string][]byte // of the site
	queue      []string          // paths in the repository that a page links to
	queued     map[string]bool
	sections   []section
	titles     map[string]string // of the pages of the navigation
}

// build returns the files of the site of a repository, by their names.
func build(repository fs.FS) (map[string][]byte, error) {
	style, err := figure.Style()
	if err != nil {
		return nil, err
	}
	b := &builder{repository: repository, queued: map[string]bool{}, titles: map[string]string{}}
	b.files = map[string][]byte{"style.css": []byte(string(style) + siteCSS), ".nojekyll": nil} // GitHub Pages takes the files as they are
	if err := b.navigate(); err != nil {
		return nil, err
	}
	for len(b.queue) > 0 {
		at := b.queue[0]
		b.queue = b.queue[1:]
		if b.files[address(at)], err = b.render(at); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
	}
	return b.files, nil
}

// navigate finds the pages of the navigation and their titles. Every document must be there.
func (b *builder) navigate() error {
	pages, err := fs.Glob(b.repository, gallery)
	if err != nil {
		return err
	}
	documents, err := fs.Glob(b.repository, "docs/*.md")
	if err != nil {
		return err
	}
	if b.sections = slices.Clone(sections); len(pages) > 0 {
		b.sections = append(b.sections, section{"Gallery", pages})
	}
	for _, s := range b.sections {
		for _, p := range s.pages {
			text, err := fs.ReadFile(b.repository, p)
			if err != nil {
				return err
			}
			if b.titles[p] = title(p, string(text)); b.titles[p] == "" {
				return fmt.Errorf("%s: got no title, want a heading or an element title", p)
			}
			b.link(p)
		}
	}
	for _, p := range documents {
		if b.titles[p] == "" {
			return fmt.Errorf("%s is in no section of the navigation, want it in one of internal/maintain/site/site.go", p)
		}
	}
	return nil
}

var htmlTitle = regexp.MustCompile(`<title>([^<]*)</title>`)

// title returns the first heading of a document, or the title of a page.
func title(name, text string) string {
	if path.Ext(name) == ".md" {
		line, _, _ := strings.Cut(text, "\n")
		heading, _ := strings.CutPrefix(line, "# ")
		return strings.ReplaceAll(heading, "`", "")
	}
	if m := htmlTitle.FindStringSubmatch(text); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// copied are the kinds of files that the site has as they are.
var copied = []string{".html", ".png", ".svg", ".jpg"}

// address returns the name of the file that the site has for a path of the repository, "" if it has none.
func address(name string) string {
	switch ext := path.Ext(name); {
	case name == "README.md":
		return "index.html"
	case ext == ".md":
		return strings.TrimSuffix(name, ext) + ".html"
	case slices.Contains(copied, ext):
		return name
	}
	return ""
}

// link queues the page of a path of the repository, once.
func (b *builder) link(name string) {
	if !b.queued[name] {
		b.queued[name] = true
		b.queue = append(b.queue, name)
	}
}

// resolve returns a link of a page for the site: one into the repository leads to the page
// of that path, or to the repository on GitHub if there is none, and any other one stays.
func (b *builder) resolve(from, link string) (string, error) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
		return link, err
	}
	name := path.Join(path.Dir(from), u.Path)
	if _, err := fs.Stat(b.repository, name); err != nil {
		return "", fmt.Errorf("the link %s: %w", link, err)
	}
	if address(name) == "" {
		return sources + name, nil
	}
	b.link(name)
	u.Path = relative(from, name)
	return u.String(), nil
}

// relative returns the relative link from the page of one path to the page of another.
func relative(from, to string) string {
	way, err := filepath.Rel(filepath.FromSlash(path.Dir(address(from))), filepath.FromSlash(address(to)))
	if err != nil { // both are in the repository
		return address(to)
	}
	return filepath.ToSlash(way)
}

// render returns the file of the site for a path of the repository.
func (b *builder) render(name string) ([]byte, error) {
	text, err := fs.ReadFile(b.repository, name)
	switch {
	case err != nil:
		return nil, err
	case path.Ext(name) == ".md":
		body, err := b.markdown(name, text)
		if err != nil {
			return nil, err
		}
		return b.page(name, title(name, string(text)), body)
	case path.Dir(name) == path.Dir(gallery):
		return b.enclose(name, text)
	}
	return text, nil
}

// block returns code as a block, coloured if there is a lexer for it, under the name of a file if it
// has one.
func block(lexer chroma.Lexer, code, file string) ([]byte, error) {
	coloured, err := figure.Highlight(lexer, code)
	if err != nil {
		return nil, err
	}
	return execute("code", map[string]any{"File": file, "Code": coloured})
}

//go:embed page.html
var pageHTML string

//go:embed site.css
var siteCSS string

var templates = template.Must(template.New("").Parse(pageHTML))

// A menu is a section of the navigation, as a page shows it.
type menu struct {
	Title string
	Links []menuLink
}

type menuLink struct {
	Title, URL string
	Here       bool
}

// menus returns the navigation of a page.
func (b *builder) menus(name string) (list []menu) {
	for _, s := range b.sections {
		m := menu{Title: s.title}
		for _, p := range s.pages {
			m.Links = append(m.Links, menuLink{b.titles[p], relative(name, p), p == name})
		}
		list = append(list, m)
	}
	return list
}

// root is the way from a page to the site's first folder.
func root(name string) string { return strings.Repeat("../", strings.Count(address(name), "/")) }

func (b *builder) page(name, title string, body template.HTML) ([]byte, error) {
	return execute("page", map[string]any{"Title": title, "Root": root(name), "Body": body, "Menus": b.menus(name)})
}

// enclose returns a page of the gallery with the navigation beside it.
func (b *builder) enclose(name string, text []byte) ([]byte, error) {
	parts := map[string]any{"Root": root(name), "Menus": b.menus(name)}
	out := text
	for _, at := range []struct{ tag, block, behind string }{{"<style>", "style", "<style>"}, {"<body>", "begin", ""}, {"</body>", "end", ""}} {
		if n := bytes.Count(out, []byte(at.tag)); n != 1 {
			return nil, fmt.Errorf("got %d tags %s, want 1", n, at.tag)
		}
		block, err := execute(at.block, parts)
		if err != nil {
			return nil, err
		}
		out = bytes.Replace(out, []byte(at.tag), append(block, at.behind...), 1)
	}
	return out, nil
}

func execute(block string, data any) ([]byte, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, block, data)
	return out.Bytes(), err
}
