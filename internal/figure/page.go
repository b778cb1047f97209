package figure

import (
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"strings"

	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
)

//go:embed style.css
var rules string

// Style returns the style sheet of a page: colours for light and dark mode, and rules for
// texts, code, tables and figures.
func Style() (template.CSS, error) {
	var css strings.Builder
	for i, mode := range []struct{ name, code string }{{"light", "github"}, {"dark", "github-dark"}} {
		fmt.Fprintf(&css, "@media (prefers-color-scheme: %s) {\n:root { color-scheme: %s;", mode.name, mode.name)
		for _, c := range variables {
			fmt.Fprintf(&css, " --%s: %s;", c.name, hex([]color.RGBA{c.light, c.dark}[i]))
		}
		css.WriteString(" }\n")
		if err := formatter.WriteCSS(&css, styles.Get(mode.code)); err != nil {
			return "", err
		}
		css.WriteString("}\n")
	}
	return template.CSS(css.String() + rules), nil
}

var formatter = chromahtml.New(chromahtml.WithClasses(true), chromahtml.PreventSurroundingPre(true))

// CUDA returns the lexer of the kernels: C++ with CUDA's additions.
func CUDA() chroma.Lexer {
	return chroma.TypeRemappingLexer(lexers.Get("c++"), chroma.TypeMapping{
		{From: chroma.Name, To: chroma.Keyword, Words: strings.Fields("__global__ __device__ __host__ __shared__ __constant__ __forceinline__ __restrict__ __launch_bounds__ __noinline__")},
		{From: chroma.Name, To: chroma.NameBuiltin, Words: strings.Fields("threadIdx blockIdx blockDim gridDim __syncthreads __syncwarp __threadfence")},
	})
}

// Highlight returns code as HTML, with the classes of its tokens if there is a lexer for it.
func Highlight(lexer chroma.Lexer, code string) (template.HTML, error) {
	if lexer == nil {
		return template.HTML(template.HTMLEscapeString(code)), nil
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = formatter.Format(&b, styles.Get("github"), tokens)
	return template.HTML(b.String()), err
}
