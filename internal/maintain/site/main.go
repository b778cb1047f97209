// Command site writes the documentation as plain HTML: README.md, the documents, and the
// gallery that `make gallery` has built. Run it in the root of the repository. The pages
// work from a folder, with no server, as well as on GitHub Pages; links to sources lead to GitHub.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/internal/command"
)

func main() {
	out := flag.String("o", ".site", "`folder` for the pages; files in it of other names stay")
	command.Flags("site")
	command.Exit("site", write(*out))
	fmt.Println("wrote", filepath.Join(*out, "index.html"))
}

func write(folder string) error {
	files, err := build(os.DirFS("."))
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o666); err != nil {
			return err
		}
	}
	return nil
}
