package notebook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html"
	"image"
	"image/color"
	_ "image/png"
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
  document.body.insertAdjacentHTML("beforeend", "<pre id=probe></pre>");
  document.getElementById("probe").textContent = JSON.stringify({
    headings: document.querySelectorAll("h1, h2").length,
    rows: document.querySelectorAll("td").length,
    code: document.querySelectorAll("pre b").length,
    images: [...document.images].map((i) => i.complete ? i.naturalWidth : 0),
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    background: colour(document.body),
  });
});
</script>`

type probed struct {
	Headings, Rows, Code, Wider int
	Images                      []int
	Background                  string
}

var probeText = regexp.MustCompile(`<pre id="probe">([^<]*)</pre>`)

// A browser shows a page: pictures decode, nothing is wider than the window of a
// phone, and dark mode is dark. The pages in docs/gallery are looked at too. Without
// a browser it is skipped, or fails where STHENO_REQUIRE_BROWSER=1.
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
		for scheme, background := range map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"} {
			dom := visit(t, browser, copied, scheme, "--dump-dom")
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
			if p.Headings < 2 || p.Rows < 2 || p.Code < 2 || len(p.Images) < 1 {
				t.Errorf("%s: %d headings, %d cells, %d keywords and %d pictures, want at least 2, 2, 2 and 1", path, p.Headings, p.Rows, p.Code, len(p.Images))
			}
			for i, width := range p.Images {
				if width < 100 {
					t.Errorf("%s: picture %d is %d pixels wide, want at least 100", path, i, width)
				}
			}
		}
	}
	checkColours(t, browser, page)
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
	visit(t, browser, page, "light", "--screenshot="+shot)
	f, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, _, err := image.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[color.RGBA]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			seen[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	for name, c := range map[string]color.RGBA{"ink of the text": Ink, "blue of the bars": Blue, "dark red of the heat map": Diverging(-1)} {
		if seen[c] < 100 {
			t.Errorf("%d pixels of the screenshot have the %s, want at least 100", seen[c], name)
		}
	}
}

// visit opens a page in a window of a phone's width and gives what the browser
// prints.
func visit(t *testing.T, browser, page, scheme string, flags ...string) []byte {
	t.Helper()
	const width, height = 500, 3000 // the narrowest that the browser makes a window
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
