package loader

import (
	"container/list"
	"errors"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
)

// cache holds loaded images: all that are in use, and the idle ones that were used last, up to a
// limit. M is a loaded image, so that the policy can be tested without a device. It is safe for several
// goroutines, which load different images side by side.
type cache[M any] struct {
	load   func(kernels.Image) (M, error)
	unload func(M) error
	limit  int // of idle entries

	mu     sync.Mutex
	loaded map[kernels.Image]*cached[M]
	idle   list.List // of *cached[M], the one unused for longest in front
}

// cached is a loaded image, or one that is being loaded, with the number of its users.
type cached[M any] struct {
	image kernels.Image
	load  func() (M, error) // the first call loads it, the others wait for that
	users int
	place *list.Element // in idle, where there are no users
}

// module returns the loaded image.
func (e *cached[M]) module() M {
	m, _ := e.load() // there was no error: acquire has returned it
	return m
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
	e := c.enter(image)
	if _, err := e.load(); err != nil {
		return nil, errors.Join(err, c.release(e))
	}
	return e, nil
}

// enter counts a user, who must release the entry, of an image that may not be loaded yet.
func (c *cache[M]) enter(image kernels.Image) *cached[M] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.loaded[image]
	if e == nil {
		e = &cached[M]{image: image, load: sync.OnceValues(func() (M, error) { return c.load(image) })}
		c.loaded[image] = e
	}
	if e.place != nil {
		c.idle.Remove(e.place)
		e.place = nil
	}
	e.users++
	return e
}

// release ends a use of an entry that is loaded, or failed to: then the next user tries again. Idle entries beyond the
// limit are unloaded.
func (c *cache[M]) release(e *cached[M]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.users--; e.users > 0 {
		return nil
	}
	if _, err := e.load(); err != nil {
		delete(c.loaded, e.image)
		return nil
	}
	e.place = c.idle.PushBack(e)
	if c.idle.Len() <= c.limit {
		return nil
	}
	oldest := c.idle.Remove(c.idle.Front()).(*cached[M])
	delete(c.loaded, oldest.image)
	return c.unload(oldest.module())
}
