package kernels

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Digest returns a hash over all images of Stheno's own library.
func Digest() string {
	h := sha256.New()
	for _, s := range own.sources() {
		for _, i := range s.Images {
			fmt.Fprintln(h, i.Hash)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Digests maps the stem of each of Stheno's sources, such as "sum" of sum.cu, to
// a digest of its compiled kernels, twelve hexadecimal digits. Two builds whose
// digests of a source are equal run the same kernels of it.
func Digests() map[string]string {
	digests := map[string]string{}
	for _, s := range own.sources() {
		digests[s.Stem] = s.Digest()
	}
	return digests
}

// sources returns the sources of the manifest; none if it cannot be read, which
// Check reports.
func (l *Library) sources() []manifest.Source {
	m, err := l.manifest()
	if err != nil {
		return nil
	}
	return m.Sources
}

// Digests maps each source that the plan's launches come from to the digest of
// its compiled kernels: a stem for Stheno's own, name/stem for another library's.
// Generated code counts as the source that it is made from.
func (p *Plan) Digests() (map[string]string, error) {
	digests := map[string]string{}
	for _, l := range p.Launches {
		c, ok := l.Kernel.Image.(compiled)
		if _, generated := l.Kernel.Image.(reduceImage); generated {
			c, ok = compiled{own, "reduce"}, true
		}
		if !ok {
			return nil, fmt.Errorf("kernel %s: got an image of type %T, want one of a library", l.Kernel.Entry, l.Kernel.Image)
		}
		s, err := c.library.source(c.stem)
		if err != nil {
			return nil, c.library.named(err)
		}
		digests[strings.TrimPrefix(c.Name(), own.name+"/")] = s.Digest()
	}
	return digests, nil
}
