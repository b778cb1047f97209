// Package prebuilt holds generated kernels that many programs need, assembled beforehand: an archive
// for each target, made by the program in cudaops/internal/prebuilt.
package prebuilt

import (
	"embed"
	"fmt"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/expr"
)

//go:embed *.archive
var Files embed.FS

// Code returns the code of a generated image: assembled, if there is such code for the device,
// else PTX.
func Code(g kernels.Generated, major, minor int) (kernels.Code, error) {
	text, err := g.PTX(major)
	if err != nil {
		return kernels.Code{}, err
	}
	if target, minDriver, err := kernels.Target(major, minor); err == nil && target != manifest.PTX {
		archive, err := archives[target]()
		if err != nil {
			return kernels.Code{}, fmt.Errorf("prebuilt kernels for %s: %w", target, err)
		}
		cubin, err := archive.Cubin(manifest.Key(text))
		if err != nil {
			return kernels.Code{}, fmt.Errorf("prebuilt kernels for %s: %w", target, err)
		}
		if cubin != nil {
			return kernels.Code{Text: cubin, Target: target, MinDriver: minDriver}, nil
		}
	}
	return kernels.Code{Text: text, Target: manifest.PTX, MinDriver: expr.MinDriver}, nil
}

// archives are those of all targets, read at first use.
var archives = func() map[string]func() (*manifest.Archive, error) {
	list := map[string]func() (*manifest.Archive, error){}
	for _, target := range manifest.Targets {
		list[target] = sync.OnceValues(func() (*manifest.Archive, error) {
			data, err := Files.ReadFile(manifest.ArchiveFile(target))
			if err != nil {
				return nil, err
			}
			return manifest.ReadArchive(data)
		})
	}
	return list
}()
