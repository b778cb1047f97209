package kernels

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Digests maps the stem of each source of the library, such as "sum" for sum.cu, to a digest of its compiled kernels, twelve hexadecimal digits. Two
// builds with equal digests of a source run the same kernels of it. Keys begin with the library's name, as in "versions/sum", except those of Stheno's own library.
func (l *Library) Digests() map[string]string {
	digests := map[string]string{}
	for _, s := range l.sources() {
		digests[compiled{l, s.Stem}.short()] = s.Digest()
	}
	return digests
}

// short is the image's name, without that of Stheno.
func (c compiled) short() string { return strings.TrimPrefix(c.Name(), own.name+"/") }

// sources returns the sources of the manifest; none if it cannot be read, which Check reports.
func (l *Library) sources() []manifest.Source {
	m, err := l.load()
	if err != nil {
		return nil
	}
	return m.Sources
}

// Digests maps each source of the plan's launches to the digest of its compiled kernels, by the
// names of [Library.Digests]. Generated code has the digest of each function of math.cu in it, such as "math/exp_f32".
func (p *Plan) Digests() (map[string]string, error) {
	if p == nil {
		return nil, errors.New("got a nil plan")
	}
	digests := map[string]string{}
	for _, l := range p.Launches {
		if l.Kernel == nil {
			return nil, fmt.Errorf("%s: got a launch without a kernel", p.Op)
		}
		g, ok := l.Kernel.Image.(interface {
			Digests() (map[string]string, error)
		})
		if !ok {
			return nil, fmt.Errorf("kernel %s: got an image of type %T, want one of a library", l.Kernel.Entry, l.Kernel.Image)
		}
		list, err := g.Digests()
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w", l.Kernel.Entry, err)
		}
		maps.Copy(digests, list)
	}
	return digests, nil
}

// Digests returns the digest of the source.
func (c compiled) Digests() (map[string]string, error) {
	s, err := c.library.source(c.stem)
	if err != nil {
		return nil, c.library.named(err)
	}
	return map[string]string{c.short(): s.Digest()}, nil
}
