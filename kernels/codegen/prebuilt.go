package codegen

import (
	"fmt"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Code returns the kernel as it was assembled beforehand, if there is one for the device, else its PTX.
func (i image) Code(major, minor int) (kernels.Code, error) {
	text, err := i.PTX(major)
	if err != nil {
		return kernels.Code{}, err
	}
	if target, minDriver, err := kernels.Target(major, minor); err == nil && target != manifest.PTX {
		var cubin []byte
		archive, err := archives[target]()
		if err == nil {
			cubin, err = archive.Cubin(manifest.Key(text))
		}
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
			data, err := kernels.Archive(target)
			if err != nil {
				return nil, err
			}
			return manifest.ReadArchive(data)
		})
	}
	return list
}()
