package loader

import (
	"container/list"
	"errors"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
)

// cache holds loaded images: all images in use, and the most recently used idle ones up to a limit. M is the type of a loaded
// image, so that the policy can be tested without a device. A cache is safe for concurrent use; different images load
// concurrently.
type cache[M any] struct {
	load   func(kernels.Image) (M, error)
	unload func(M) error
	limit  int // of idle entries

	mu     sync.Mutex
	loaded map[kernels.Image]*cached[M]
	idle   list.List // of *cached[M], least recently used first
}

// cached is a loaded or loading image with its number of users.
type cached[M any] struct {
	image kernels.Image
	load  func() (M, error) // the first call loads the image; other calls wait for it
	users int
	place *list.Element // element of idle while there are no users
}

// module returns the loaded image.
func (e *cached[M]) module() M {
	m, _ := e.load() // no error: acquire has loaded the image
	return m
}

func newCache[M any](limit int, load func(kernels.Image) (M, error), unload func(M) error) *cache[M] {
	return &cache[M]{load: load, unload: unload, limit: limit, loaded: map[kernels.Image]*cached[M]{}}
}

// acquire returns the entry of an image with one more user, who must release it. It loads the image if necessary.
func (c *cache[M]) acquire(image kernels.Image) (*cached[M], error) {
	if _, err := kernels.Load(image); err != nil {
		return nil, err
	}
	e := c.enter(image)
	if _, err := e.load(); err != nil {
		return nil, errors.Join(err, c.release(e))
	}
	return e, nil
}

// enter returns the entry of an image with one more user, who must release it. The image may not be loaded yet.
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

// release ends a use of an entry. It unloads idle entries beyond the limit, and removes an entry that failed to load, so that
// the next user tries again.
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
