package loader

import (
	"container/list"

	"github.com/stheno-ml/stheno/kernels"
)

// cache holds loaded images: all that are in use, and the idle ones that were used last, up to a
// limit. M is a loaded image, so that the policy can be tested without a device.
type cache[M any] struct {
	load   func(kernels.Image) (M, error)
	unload func(M) error
	limit  int // of idle entries
	loaded map[kernels.Image]*cached[M]
	idle   list.List // of *cached[M], the one unused for longest in front
}

// cached is a loaded image with the number of its users.
type cached[M any] struct {
	image  kernels.Image
	module M
	users  int
	place  *list.Element // in idle, where there are no users
}

func newCache[M any](limit int, load func(kernels.Image) (M, error), unload func(M) error) *cache[M] {
	return &cache[M]{load: load, unload: unload, limit: limit, loaded: map[kernels.Image]*cached[M]{}}
}

// acquire returns the entry of an image, loading it if need be, and counts a user, who must release
// it.
func (c *cache[M]) acquire(image kernels.Image) (*cached[M], error) {
	if err := kernels.CheckImage(image); err != nil {
		return nil, err
	}
	e := c.loaded[image]
	if e == nil {
		module, err := c.load(image)
		if err != nil {
			return nil, err
		}
		e = &cached[M]{image: image, module: module}
		c.loaded[image] = e
	}
	if e.place != nil {
		c.idle.Remove(e.place)
		e.place = nil
	}
	e.users++
	return e, nil
}

// release ends a use of an entry. Idle entries beyond the limit are unloaded.
func (c *cache[M]) release(e *cached[M]) error {
	if e.users--; e.users > 0 {
		return nil
	}
	e.place = c.idle.PushBack(e)
	if c.idle.Len() <= c.limit {
		return nil
	}
	oldest := c.idle.Remove(c.idle.Front()).(*cached[M])
	delete(c.loaded, oldest.image)
	return c.unload(oldest.module)
}
