package notebook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"image/color"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/must"
)

// probe is a script that writes what the browser made of a page into it.
const probe = `<script>
addEventListener("load", () => {
  const colour = (e) => getComputedStyle(e).backgroundColor;
  const shown = [...document.querySelectorAll("svg")].filter((s) => s.getBoundingClientRect().width > 0);
  document.body.insertAdjacentHTML("beforeend", "<pre id=probe></pre>");
  document.getElementById("probe").textContent = JSON.stringify({
    headings: document.querySelectorAll("h1, h2").length,
    rows: document.querySelectorAll("td").length,
    code: document.querySelectorAll("pre .k, pre .kt, pre .kd").length,
    panels: shown.map((s) => s.getBoundingClientRect().width),
    empty: [...document.querySelectorAll("figure[id]")].filter((f) => !shown.some((s) => f.contains(s))).map((f) => f.id),
    small: shown.flatMap((s) => [...s.querySelectorAll("text")]).filter((e) => e.getAttribute("font-size") > 10 && e.getBoundingClientRect().height < 10).map((e) => e.textContent),
    outside: shown.flatMap((s) => [...s.querySelectorAll("text")].filter((e) => {
      const a = s.getBoundingClientRect(), b = e.getBoundingClientRect();
      return b.left < a.left - 1 || b.right > a.right + 1 || b.top < a.top - 4 || b.bottom > a.bottom + 4;
    }).map((e) => e.textContent)),
    ink: [...document.querySelectorAll("svg text")].map((e) => getComputedStyle(e).fill),
    code_ink: [...document.querySelectorAll("pre.chroma, pre.chroma span")].map((e) => getComputedStyle(e).color),
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    background: colour(document.body),
  });
});
</script>`

type probed struct {
	Headings, Rows, Code, Wider int
	Panels                      []float64
	Empty                       []string // figures of which nothing is shown
	Small, Outside              []string // texts of figures that are too small to read, or clipped
	Ink                         []string // colours of the figures' texts
	CodeInk                     []string `json:"code_ink"`
	Background                  string
}

var probeText = regexp.MustCompile(`<pre id="probe">([^<]*)</pre>`)

// A browser shows a page: figures are large enough and whole, nothing is wider than a
// window, narrow or wide, and dark mode is dark, figures and code included. The pages in
// docs/gallery are looked at too. Without a browser it is skipped, or fails where
// STHENO_REQUIRE_BROWSER=1.
func TestBrowser(t *testing.T) {
	browser := findBrowser(t)
	dir := t.TempDir()
	page := filepath.Join(dir, "page.html")
	if err := Run(Options{HTML: page, Device: "cpu", Small: true}, new(bytes.Buffer), "A <title>", []byte(record1), sample); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../../docs/gallery/*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, page) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > maxPage {
			t.Errorf("%s has %d bytes, want at most %d", path, len(text), maxPage)
		}
		copied := filepath.Join(dir, "probed.html")
		if err := os.WriteFile(copied, append(text, probe...), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []struct {
			scheme, background string
			width              int
		}{{"light", "rgb(255, 255, 255)", phone}, {"dark", "rgb(20, 24, 29)", 1100}} {
			scheme, background := mode.scheme, mode.background
			dom := visit(t, browser, copied, scheme, mode.width, "--dump-dom")
			m := probeText.FindSubmatch(dom)
			if m == nil {
				t.Fatalf("%s: the browser did not run the probe; it gave %d bytes", path, len(dom))
			}
			var p probed
			if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &p); err != nil {
				t.Fatal(err)
			}
			if p.Wider > 0 {
				t.Errorf("%s: %d pixels wider than the window", path, p.Wider)
			}
			if p.Background != background {
				t.Errorf("%s in %s mode has background %s, want %s", path, scheme, p.Background, background)
			}
			if p.Headings < 2 || p.Rows < 2 || p.Code < 2 || len(p.Panels) < 1 {
				t.Errorf("%s: %d headings, %d cells, %d keywords and %d drawings, want at least 2, 2, 2 and 1", path, p.Headings, p.Rows, p.Code, len(p.Panels))
			}
			for i, width := range p.Panels {
				if width < 300 {
					t.Errorf("%s: drawing %d is %v pixels wide, want at least 300", path, i, width)
				}
			}
			if len(p.Empty)+len(p.Small)+len(p.Outside) > 0 {
				t.Errorf("%s: figures with no drawing: %q, texts too small: %q, clipped: %q", path, p.Empty, p.Small, p.Outside)
			}
			checkContrast(t, path+" in "+scheme+" mode", p)
		}
	}
	checkColours(t, browser, page)
}

// checkContrast compares the colours of texts with the background of the page.
func checkContrast(t *testing.T, where string, p probed) {
	t.Helper()
	back := lightness(t, p.Background)
	away := 0 // of the figures' texts; those in the cells of maps stand on colours of their own
	for _, c := range p.Ink {
		if math.Abs(lightness(t, c)-back) > .3 {
			away++
		}
	}
	if away < 10 || away < len(p.Ink)/2 {
		t.Errorf("%s: of %d texts of figures %d can be told from the background", where, len(p.Ink), away)
	}
	for _, c := range p.CodeInk {
		if d := math.Abs(lightness(t, c) - back); d < .3 {
			t.Errorf("%s: code in %s on %s", where, c, p.Background)
			return
		}
	}
}

// lightness is that of a colour as a browser writes it, from 0 to 1.
func lightness(t *testing.T, colour string) float64 {
	t.Helper()
	var c color.RGBA
	if _, err := fmt.Sscanf(colour, "rgb(%d, %d, %d)", &c.R, &c.G, &c.B); err != nil {
		t.Fatalf("the colour %q: %v", colour, err)
	}
	return luminance(c)
}

// findBrowser returns the path of a browser, or skips the test.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	must.Have(t, "BROWSER", errors.New("no chromium on this machine (Debian: apt-get install chromium)"))
	return ""
}

// checkColours takes a picture of the screen, where the colours of the charts must be.
func checkColours(t *testing.T, browser, page string) {
	t.Helper()
	shot := filepath.Join(t.TempDir(), "page.png")
	visit(t, browser, page, "light", phone, "--screenshot="+shot)
	seen := count(readPNG(t, shot))
	red := HeatMap{Gain: true, Values: [][]float64{{-1, 1}}}
	c, _ := red.colours()
	for name, c := range map[string]color.RGBA{"ink of the text": Ink, "blue of the lines": Blue, "dark red of the heat map": c.of(-1)} {
		if seen[c] < 100 {
			t.Errorf("%d pixels of the screenshot have the %s, want at least 100", seen[c], name)
		}
	}
}

// phone is the width of a narrow window, the narrowest that the browser makes.
const phone = 500

// visit opens a page in a window of a width and gives what the browser prints.
func visit(t *testing.T, browser, page, scheme string, width int, flags ...string) []byte {
	t.Helper()
	const height = 3000
	args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
		"--window-size=" + strconv.Itoa(width) + "," + strconv.Itoa(height)}, flags...)
	if scheme == "dark" {
		args = append(args, "--blink-settings=preferredColorScheme=0")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, append(args, "file://"+page)...)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", browser, err, stderr.String())
	}
	return out
}
