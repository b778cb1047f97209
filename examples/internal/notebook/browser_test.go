package notebook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"image/color"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// frames is a page that shows others in windows of a width, and a script that writes what the
// browser made of them into it.
const frames = `<body><script>
addEventListener("load", () => {
  const look = (w) => {
    const d = w.document, all = (q) => [...d.querySelectorAll(q)], style = (e) => w.getComputedStyle(e), box = (e) => e.getBoundingClientRect();
    const shown = all("svg").filter((s) => box(s).width > 0), texts = (s) => [...s.querySelectorAll("text")];
    return {
      headings: all("h1, h2").length,
      rows: all("td").length,
      code: all("pre .k, pre .kt, pre .kd").length,
      panels: shown.map((s) => box(s).width),
      empty: all("figure[id]").filter((f) => !shown.some((s) => f.contains(s))).map((f) => f.id),
      small: shown.flatMap(texts).filter((e) => e.getAttribute("font-size") > 10 && box(e).height < 10).map((e) => e.textContent),
      outside: shown.flatMap((s) => texts(s).filter((e) => {
        const a = box(s), b = box(e);
        return b.left < a.left - 1 || b.right > a.right + 1 || b.top < a.top - 4 || b.bottom > a.bottom + 4;
      }).map((e) => e.textContent)),
      ink: all("svg text").map((e) => style(e).fill),
      code_ink: all("pre.chroma, pre.chroma span").filter((e) => e.textContent.trim()).map((e) => style(e).color),
      wider: d.documentElement.scrollWidth - d.documentElement.clientWidth,
      background: style(d.body).backgroundColor,
    };
  };
  const seen = [...document.querySelectorAll("iframe")].map((f) => look(f.contentWindow));
  document.body.insertAdjacentHTML("beforeend", "<pre id=probe></pre>");
  document.getElementById("probe").textContent = JSON.stringify(seen);
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

// checkInBrowser shows pages in a browser: figures are large enough and whole, nothing is wider than
// a window, narrow or wide, and dark mode is dark, figures and code included. Without a browser the
// test is skipped, or fails where STHENO_REQUIRE_BROWSER=1.
func checkInBrowser(t *testing.T, pages []string) {
	browser := findBrowser(t)
	dir := t.TempDir()
	for _, mode := range []struct {
		scheme, background string
		width              int
	}{{"light", "rgb(255, 255, 255)", phone}, {"dark", "rgb(20, 24, 29)", 1100}} {
		text := frames
		for _, path := range pages {
			text += fmt.Sprintf("<iframe src=%q width=%d height=3000></iframe>", "file://"+path, mode.width)
		}
		window := filepath.Join(dir, mode.scheme+".html")
		if err := os.WriteFile(window, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		dom := visit(t, browser, window, mode.scheme, "--allow-file-access-from-files", "--dump-dom")
		m := probeText.FindSubmatch(dom)
		if m == nil {
			t.Fatalf("the browser did not run the probe; it gave %d bytes", len(dom))
		}
		var seen []probed
		if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &seen); err != nil {
			t.Fatal(err)
		}
		if len(seen) != len(pages) {
			t.Fatalf("the browser shows %d pages, want %d", len(seen), len(pages))
		}
		for i, p := range seen {
			checkPage(t, fmt.Sprintf("%s in %s mode, %d pixels wide", pages[i], mode.scheme, mode.width), p, mode.background)
		}
	}
	checkColours(t, browser, pages[0])
}

// checkPage compares a browser's rendering of a page with what it should be.
func checkPage(t *testing.T, where string, p probed, background string) {
	t.Helper()
	if p.Wider > 0 {
		t.Errorf("%s: %d pixels wider than the window", where, p.Wider)
	}
	if p.Background != background {
		t.Errorf("%s: background %s, want %s", where, p.Background, background)
	}
	if p.Headings < 2 || p.Rows < 2 || p.Code < 2 || len(p.Panels) < 1 {
		t.Errorf("%s: %d headings, %d cells, %d keywords and %d drawings, want at least 2, 2, 2 and 1", where, p.Headings, p.Rows, p.Code, len(p.Panels))
	}
	for i, width := range p.Panels {
		if width < 200 {
			t.Errorf("%s: drawing %d is %v pixels wide, want at least 200", where, i, width)
		}
	}
	if len(p.Empty)+len(p.Small)+len(p.Outside) > 0 {
		t.Errorf("%s: figures with no drawing: %q, texts too small: %q, clipped: %q", where, p.Empty, p.Small, p.Outside)
	}
	checkContrast(t, where, p)
}

// checkContrast compares the colours of texts with the background of the page.
func checkContrast(t *testing.T, where string, p probed) {
	t.Helper()
	back := lightness(t, p.Background)
	away := 0 // texts of figures in another lightness than the page; cells of maps have backgrounds of another colour
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
	c := color.RGBA{A: 0xff}
	if _, err := fmt.Sscanf(colour, "rgb(%d, %d, %d)", &c.R, &c.G, &c.B); err != nil {
		t.Fatalf("the colour %q: %v", colour, err)
	}
	return float64(color.GrayModel.Convert(c).(color.Gray).Y) / 255
}

// findBrowser returns the path of a browser, or skips the test.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	testutil.SkipUnless(t, "BROWSER", errors.New("no chromium on this machine (Debian: apt-get install chromium)"))
	return ""
}

// checkColours takes a picture of the screen, where the colours of the charts must be.
func checkColours(t *testing.T, browser, page string) {
	t.Helper()
	shot := filepath.Join(t.TempDir(), "page.png")
	visit(t, browser, page, "light", "--screenshot="+shot)
	img, err := png.Decode(bytes.NewReader(testutil.Get[[]byte](t)(os.ReadFile(shot))))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[color.RGBA]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			seen[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	for name, c := range map[string]color.RGBA{"ink of the text": figure.Ink, "blue of the lines": figure.Blue, "dark red of the heat map": figure.RGB(0xb40426)} {
		n := 0
		for s, pixels := range seen {
			if max(s.R, c.R)-min(s.R, c.R) < 2 && max(s.G, c.G)-min(s.G, c.G) < 2 && max(s.B, c.B)-min(s.B, c.B) < 2 { // perhaps rounded another way
				n += pixels
			}
		}
		if n < 100 {
			t.Errorf("%d pixels of the screenshot have the %s, want at least 100", n, name)
		}
	}
}

// phone is the width of a narrow window, the narrowest that the browser makes.
const phone = 500

// visit opens a page in a narrow window and returns what the browser prints.
func visit(t *testing.T, browser, page, scheme string, flags ...string) []byte {
	t.Helper()
	const height = 6000
	args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
		"--window-size=" + strconv.Itoa(phone) + "," + strconv.Itoa(height)}, flags...)
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
