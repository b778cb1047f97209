package main

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"golang.org/x/net/html"
)

// A document holds the parts of a page that the test reads.
type document struct {
	ids   map[string]bool
	links []string // addresses of all attributes that have one
	nav   []string // links of the navigation
}

// empty are the elements that have no end.
var empty = []string{"meta", "link", "br", "hr", "img", "input", "path", "rect", "circle", "image"}

// read reads a page, whose elements must nest and which must load nothing from elsewhere.
func read(t *testing.T, name string, page []byte) document {
	t.Helper()
	d := document{ids: map[string]bool{}}
	var open []string
	for z := html.NewTokenizer(bytes.NewReader(page)); ; {
		kind := z.Next()
		token := z.Token()
		switch kind {
		case html.ErrorToken:
			if z.Err() != io.EOF || len(open) > 0 {
				t.Errorf("%s: %v, and %q have no end", name, z.Err(), open)
			}
			return d
		case html.StartTagToken, html.SelfClosingTagToken:
			element(t, name, token, slices.Contains(open, "nav"), &d)
			if kind == html.StartTagToken && !slices.Contains(empty, token.Data) {
				open = append(open, token.Data)
			}
		case html.EndTagToken:
			if slices.Contains(empty, token.Data) {
				continue
			}
			if len(open) == 0 || open[len(open)-1] != token.Data {
				t.Fatalf("%s: the end of %s within %q", name, token.Data, open)
			}
			open = open[:len(open)-1]
		}
	}
}

func element(t *testing.T, name string, token html.Token, nav bool, d *document) {
	t.Helper()
	has := map[string]string{}
	for _, a := range token.Attr {
		has[a.Key] = a.Val
	}
	if id := has["id"]; id != "" {
		if d.ids[id] {
			t.Errorf("%s: two elements have the id %s", name, id)
		}
		d.ids[id] = true
	}
	switch {
	case token.Data == "script" || token.Data == "iframe":
		t.Errorf("%s has a %s", name, token.Data)
	case token.Data == "img" && has["alt"] == "", token.Data == "svg" && has["aria-label"] == "":
		t.Errorf("%s: %v has no words for those who do not see it", name, token)
	case token.Data == "a" && nav:
		d.nav = append(d.nav, has["href"])
	}
	for _, address := range []string{has["href"], has["src"]} {
		if u, err := url.Parse(address); address == "" || strings.HasPrefix(address, "data:") {
			continue
		} else if err != nil || token.Data != "a" && u.Host != "" {
			t.Errorf("%s: %s loads %s (%v)", name, token.Data, address, err)
		}
		d.links = append(d.links, address)
	}
}

// Every page is well-formed and loads nothing from elsewhere, every link leads to a file and to
// a place in it, and the navigation of each page has all documents and the gallery.
func TestSite(t *testing.T) {
	repository := os.DirFS("../../..")
	files, err := build(repository)
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string]document{}
	for name, content := range files {
		if path.Ext(name) == ".html" {
			documents[name] = read(t, name, content)
		}
	}
	var wanted []string
	for _, pattern := range []string{"docs/*.md", gallery} {
		wanted = append(wanted, testutil.Get[[]string](t)(fs.Glob(repository, pattern))...)
	}
	if len(wanted) < 12 { // and pages of the gallery, where it was built
		t.Errorf("there are only the pages %q", wanted)
	}
	for name, d := range documents {
		inside := 0
		targets := map[string]bool{}
		for i, link := range append(d.links, d.nav...) {
			u := testutil.Get[*url.URL](t)(url.Parse(link))
			if u.Host != "" {
				continue
			}
			inside++
			target := name
			if u.Path != "" {
				target = path.Join(path.Dir(name), u.Path)
			}
			if _, ok := files[target]; !ok {
				t.Errorf("%s: the link %s leads nowhere", name, link)
			} else if u.Fragment != "" && !documents[target].ids[u.Fragment] {
				t.Errorf("%s: the link %s leads to no place in %s", name, link, target)
			}
			targets[target] = targets[target] || i >= len(d.links)
		}
		if inside < 20 {
			t.Errorf("%s has %d links", name, inside)
		}
		for _, page := range append(wanted, "README.md", "CONTRIBUTING.md") {
			if !targets[address(page)] {
				t.Errorf("the navigation of %s does not have %s", name, page)
			}
		}
	}
	for _, want := range []string{`<figcaption><code>swish.cu</code></figcaption>`, `<span class="k">__global__</span>`, `<td style="text-align:right">`, `<div class="table" tabindex="0"><table>`} {
		if page := files["docs/write-your-own-kernel.html"]; !bytes.Contains(append(page, files["index.html"]...), []byte(want)) {
			t.Errorf("no page has %s", want)
		}
	}
	out := t.TempDir()
	t.Chdir("../../..")
	testutil.Do(t, write(out))
	if got := testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(out, "docs", "training.html"))); !bytes.Equal(got, files["docs/training.html"]) {
		t.Error("two builds differ")
	}
}

// Sources of a dead link or an incomplete page are errors that name it.
func TestErrors(t *testing.T) {
	sound := fstest.MapFS{"docs/gallery/a.html": {Data: []byte("<title>A</title><style></style><body></body>")}, "x.bin": {Data: []byte{0xff}}}
	for _, s := range sections {
		for _, p := range s.pages {
			sound[p] = &fstest.MapFile{Data: []byte("# Title\n\ntext\n")}
		}
	}
	files, err := build(sound)
	if err != nil {
		t.Fatal(err)
	}
	if page := string(files["docs/gallery/a.html"]); !strings.Contains(page, `<a href="../../index.html">Title</a>`) || !strings.Contains(page, `<a href="a.html" aria-current="page">A</a>`) {
		t.Errorf("the page of the gallery has no navigation: %s", page)
	}
	if page := string(files["index.html"]); !strings.Contains(page, `<a href="docs/gallery/a.html">A</a>`) {
		t.Errorf("the navigation does not have the page of the gallery: %s", page)
	}
	if link, err := (&builder{repository: os.DirFS("../../..")}).resolve("docs/host.md", "../ops/add.go"); link != sources+"ops/add.go" || err != nil {
		t.Errorf("a source: got %s, %v, want it on GitHub", link, err)
	}
	for _, c := range []struct{ file, text, want string }{
		{"README.md", "# Title\n\n[a](nowhere.md)\n", "README.md: the link nowhere.md"},
		{"docs/host.md", "# Title\n\n[a](../../x)\n", "docs/host.md: the link ../../x"},
		{"docs/host.md", "# Title\n\n![](../x.bin)\n", "has no words"},
		{"docs/host.md", "# Title\n\n```java\n```\n", `got a block in the language "java"`},
		{"docs/host.md", "", "docs/host.md: got no title"},
		{"docs/new.md", "# New\n", "docs/new.md is in no section"},
		{"docs/gallery/a.html", "<title>A</title>", "got 0 tags <style>"},
	} {
		repository := maps.Clone(sound)
		repository[c.file] = &fstest.MapFile{Data: []byte(c.text)}
		if _, err := build(repository); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q: got error %v, want one with %q", c.file, c.text, err, c.want)
		}
	}
}

// Headings have the anchors that GitHub makes.
func TestAnchors(t *testing.T) {
	a := anchors{}
	for _, c := range [][2]string{{"Same input, same bits", "same-input-same-bits"}, {"NaN and Inf", "nan-and-inf"}, {"`stheno env`", "stheno-env"},
		{"1. Another machine", "1-another-machine"}, {"Größe_2 — x", "größe_2--x"}, {"NaN and Inf", "nan-and-inf-1"}, {"NaN and Inf", "nan-and-inf-2"}} {
		if got := string(a.Generate([]byte(c[0]), 0)); got != c[1] {
			t.Errorf("%q is named %q, want %q", c[0], got, c[1])
		}
	}
}
