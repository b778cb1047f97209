package manifest

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Files are the CUDA sources and headers of a folder: the path of each by its base name, by which sources include headers. Files in
// sub-folders are included, except in sub-folders that contain images.
type Files map[string]string

// FindFiles returns the files of a folder. Two files of one name are an error.
func FindFiles(folder fs.FS) (Files, error) {
	files := Files{}
	folders := []string{"."}
	entries, err := fs.ReadDir(folder, ".")
	for _, e := range entries {
		if _, err := fs.Stat(folder, path.Join(e.Name(), "images")); e.IsDir() && err != nil {
			folders = append(folders, e.Name())
		}
	}
	for _, sub := range folders {
		paths, _ := fs.Glob(folder, path.Join(sub, "*.cu*")) // the pattern is right
		for _, p := range paths {
			name := path.Base(p)
			if ext := path.Ext(name); ext != ".cu" && ext != ".cuh" {
				continue
			}
			if other, ok := files[name]; ok {
				return nil, fmt.Errorf("got sources %s and %s, want names that differ", other, p)
			}
			files[name] = p
		}
	}
	return files, err
}

// Stems returns the names of the sources x.cu without the ending, in order.
func (f Files) Stems() (stems []string) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if stem, ok := strings.CutSuffix(name, ".cu"); ok {
			stems = append(stems, stem)
		}
	}
	return stems
}

// Folders returns the folders that the files are in, in order.
func (f Files) Folders() []string {
	folders := map[string]bool{}
	for _, p := range f {
		folders[path.Dir(p)] = true
	}
	return slices.Sorted(maps.Keys(folders))
}

// Read returns the text of the file of a base name.
func (f Files) Read(folder fs.FS, name string) ([]byte, error) {
	return fs.ReadFile(folder, cmp.Or(f[name], name))
}
