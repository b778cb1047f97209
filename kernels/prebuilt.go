package kernels

import (
	"embed"
	"sync"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// prebuiltFiles holds generated kernels that many programs need, assembled beforehand: an archive
// for each target, made by the program in cudaops/internal/prebuilt.
//
//go:embed prebuilt/*.archive
var prebuiltFiles embed.FS

// Generated is an image that is PTX, made when a device loads it.
type Generated interface {
	Image
	// PTX returns the PTX for devices of a major compute capability.
	PTX(major int) ([]byte, error)
	// Digests returns digests of the code that the PTX is made of, such as that of each function in it, as [Library.Digests] does.
	Digests() (map[string]string, error)
}

// GeneratedCode returns the PTX of an image for devices of a major compute capability, if the image
// is generated from a function.
func GeneratedCode(image Image, major int) (ptx []byte, ok bool, err error) {
	g, ok := image.(Generated)
	if !ok {
		return nil, false, nil
	}
	ptx, err = g.PTX(major)
	return ptx, true, err
}

// CodeOf returns the code of a generated image: assembled, if there is such code for the device,
// else PTX.
func CodeOf(g Generated, major, minor int) (Code, error) {
	text, err := g.PTX(major)
	if err != nil {
		return Code{}, err
	}
	if target, minDriver, err := Target(major, minor); err == nil && target != manifest.PTX {
		archive, err := archives[target]()
		if err != nil {
			return Code{}, own.named(err)
		}
		cubin, err := archive.Cubin(manifest.Key(text))
		if err != nil {
			return Code{}, own.named(err)
		}
		if cubin != nil {
			return Code{cubin, target, minDriver}, nil
		}
	}
	return Code{text, manifest.PTX, expr.MinDriver}, nil
}

// archives are those of all targets, read at first use.
var archives = func() map[string]func() (*manifest.Archive, error) {
	list := map[string]func() (*manifest.Archive, error){}
	for _, target := range manifest.Targets {
		list[target] = sync.OnceValues(func() (*manifest.Archive, error) {
			data, err := prebuiltFiles.ReadFile("prebuilt/" + manifest.ArchiveFile(target))
			if err != nil {
				return nil, err
			}
			return manifest.ReadArchive(data)
		})
	}
	return list
}()
