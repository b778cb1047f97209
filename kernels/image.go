package kernels

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Image is CUDA code that holds kernels: embedded in this module, embedded in another one, or generated. Backends compare images with ==, and load
// equal ones once: an image is a comparable value whose code follows from the value alone.
type Image interface {
	// Name names the image in errors and reports, as in stheno/sum.
	Name() string
	// Code returns the code for a device of that compute capability. A call can last
	// milliseconds. Backends call Code when they load the image, concurrently for several images.
	Code(major, minor int) (Code, error)
}

// Generated is an image that is PTX, made when a device loads it.
type Generated interface {
	Image
	// PTX returns the PTX for devices of a major compute capability.
	PTX(major int) ([]byte, error)
	// Digests returns digests of the code that the PTX is made of, such as that of each function in it, as [Library.Digests] does.
	Digests() (map[string]string, error)
}

// Load returns an image, which may be of another module, with methods that do not panic: Code returns an error for a panic, and for code without text.
// It is an error if there is no image, or one that cannot be compared.
func Load(image Image) (Image, error) {
	if guard.IsNil(image) {
		return nil, errors.New("got a kernel without an image")
	}
	l := loaded{image}
	if !reflect.ValueOf(image).Comparable() {
		return nil, fmt.Errorf("image %s is a %T, want a comparable type", l.Name(), image)
	}
	return l, nil
}

type loaded struct{ image Image }

func (l loaded) Code(major, minor int) (c Code, err error) {
	err = guard.Recover("its Code", func() (err error) { c, err = l.image.Code(major, minor); return err })
	if err == nil && len(c.Text) == 0 {
		err = errors.New("it has no code")
	}
	if err != nil {
		return Code{}, fmt.Errorf("image %s: %w", l.Name(), err)
	}
	return c, nil
}

func (l loaded) Name() (name string) {
	if err := guard.Recover("Name", func() error { name = l.image.Name(); return nil }); err != nil {
		return fmt.Sprintf("of type %T", l.image)
	}
	return name
}

// Code is code for the CUDA driver.
type Code struct {
	Text      []byte // a cubin or PTX
	Target    string // its target, such as "sm_80" or "ptx"
	MinDriver int    // the CUDA version, as 12000 for 12.0, that the driver must support
}

// Target returns the image of a [Library] that is compiled for all targets, for a device of that compute capability: the cubin of the
// same major version and the highest minor version that is not above the device's, else PTX, which
// the driver compiles. minDriver is as in [Code]. It is an error if the device is older than 7.0.
func Target(major, minor int) (target string, minDriver int, err error) {
	return targetOf(manifest.Targets, major, minor)
}

// targetOf is Target for images of the given targets.
func targetOf(targets []string, major, minor int) (target string, minDriver int, err error) {
	if major < 7 {
		return "", 0, fmt.Errorf("compute capability %d.%d is too old: the kernels need 7.0 (Volta) or newer", major, minor)
	}
	best := -1
	for _, t := range targets {
		name, exact := strings.CutSuffix(strings.TrimPrefix(t, "sm_"), "a")
		n, err := strconv.Atoi(name)
		if err != nil || n/10 != major || n%10 > minor || n%10 < best || exact && n%10 != minor {
			continue
		}
		target, best = t, n%10
	}
	// Cubins load on every driver of their compiler's major version that knows the device; PTX only on one as new as the compiler, CUDA 12.9.
	switch {
	case best < 0:
		return manifest.PTX, 12090, nil
	case major >= 10:
		return target, 12080, nil
	}
	return target, 12000, nil
}
