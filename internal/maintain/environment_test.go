package maintain

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// docs/environment.md names every variable that a source reads by its name, and none that
// nothing reads.
func TestEnvironmentIsDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	page := string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(root, "docs", "environment.md"))))
	documented := map[string]bool{}
	for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(page, -1) {
		documented[name[1]] = true
	}
	// Whatever is read by its name, of others too.
	anybodys := regexp.MustCompile(`(?i)(?:getenv|lookupenv)\("(\w*\w)"\)`)
	// A prefix, such as STHENO_REQUIRE_, ends in an underscore; names of macros
	// begin in another way.
	read := regexp.MustCompile(`(?:env\("|\$\{?|[ =]|")(STHENO_[A-Z_]*[A-Z])\b`)
	used := map[string]string{}
	testutil.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 && d.Name() != ".ci":
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".sh", ".md", ""}, filepath.Ext(path)) || strings.HasSuffix(path, "environment.md"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range slices.Concat(read.FindAllStringSubmatch(string(text), -1), anybodys.FindAllStringSubmatch(string(text), -1)) {
			if !strings.HasPrefix(m[1], "STHENO_COMPAT_") && !strings.HasSuffix(m[1], "_") {
				used[m[1]] = path
			}
		}
		return err
	}))
	for name, path := range used {
		if !documented[name] {
			t.Errorf("docs/environment.md has no %s, which %s names", name, path)
		}
	}
	for name := range documented {
		if strings.HasPrefix(name, "STHENO_") && used[name] == "" {
			t.Errorf("docs/environment.md has %s, which nothing names", name)
		}
	}
}
