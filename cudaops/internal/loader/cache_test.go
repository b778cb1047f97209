package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// fake is an image of no code.
type fake string

func (f fake) Name() string                      { return string(f) }
func (fake) Code(int, int) (kernels.Code, error) { return kernels.Code{}, nil }

// loads records the loads and unloads of a cache.
type loads struct {
	all, alive []string
	err        error // of the next load
}

func (l *loads) cache(limit int) *cache[string] {
	load := func(i kernels.Image) (string, error) {
		if err := l.err; err != nil {
			l.err = nil
			return "", err
		}
		l.all, l.alive = append(l.all, i.Name()), append(l.alive, i.Name())
		return i.Name(), nil
	}
	unload := func(name string) error {
		l.alive = slices.DeleteFunc(l.alive, func(s string) bool { return s == name })
		return nil
	}
	return newCache(limit, load, unload)
}

func acquire(t *testing.T, c *cache[string], image kernels.Image) *cached[string] {
	t.Helper()
	e, err := c.acquire(image)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func release(t *testing.T, c *cache[string], e *cached[string]) {
	t.Helper()
	if err := c.release(e); err != nil {
		t.Fatal(err)
	}
}

// Images in use stay loaded. Of the idle images, the most recently used ones stay, up to the limit.
func TestCache(t *testing.T) {
	var l loads
	c := l.cache(2)
	held, twice := acquire(t, c, fake("held")), acquire(t, c, fake("twice"))
	if acquire(t, c, fake("twice")) != twice {
		t.Error("one image has two entries")
	}
	release(t, c, twice) // one of two users
	for i := range 10 {
		release(t, c, acquire(t, c, fake(fmt.Sprint(i))))
	}
	if want := []string{"held", "twice", "8", "9"}; !slices.Equal(l.alive, want) {
		t.Errorf("%v are loaded, want %v", l.alive, want)
	}
	release(t, c, acquire(t, c, fake("8"))) // used later than 9
	release(t, c, held)
	if want := []string{"held", "twice", "8"}; !slices.Equal(sorted(l.alive), sorted(want)) {
		t.Errorf("%v are loaded, want %v", l.alive, want)
	}
	n := len(l.all)
	release(t, c, acquire(t, c, fake("held")))
	if len(l.all) != n {
		t.Error("an idle image was loaded again")
	}
	release(t, c, acquire(t, c, fake("9")))
	if len(l.all) != n+1 {
		t.Error("an unloaded image was not loaded again")
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// However many images there are, no more than the limit stay.
func TestCacheBound(t *testing.T) {
	var l loads
	c := l.cache(idleModules)
	for i := range 10_000 {
		release(t, c, acquire(t, c, fake(fmt.Sprint(i))))
	}
	if len(l.alive) != idleModules || len(c.loaded) != idleModules || c.idle.Len() != idleModules {
		t.Errorf("%d are loaded, %d entries, %d idle, want %d", len(l.alive), len(c.loaded), c.idle.Len(), idleModules)
	}
}

// uncomparable is an image that == panics on.
type uncomparable struct {
	fake
	_ []byte
}

func TestCacheErrors(t *testing.T) {
	var l loads
	c := l.cache(2)
	for want, image := range map[string]kernels.Image{
		"got a kernel without an image":                   nil,
		"image x is a loader.uncomparable, want a compar": uncomparable{fake: "x"},
	} {
		if _, err := c.acquire(image); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	l.err = errors.New("no memory")
	if _, err := c.acquire(fake("a")); err == nil || len(c.loaded) != 0 {
		t.Errorf("a failed load leaves %d entries, %v", len(c.loaded), err)
	}
	if e := acquire(t, c, fake("a")); e.module() != "a" {
		t.Error("it is not loaded when it can be")
	}
}

// Images are loaded concurrently, each once for all who want it at the same time, and what fails
// fails for all of them and is tried again by those who come later.
func TestCacheSideBySide(t *testing.T) {
	var mu sync.Mutex
	var begun sync.WaitGroup
	loaded := map[string]int{}
	begun.Add(2)
	failed := errors.New("no memory")
	c := newCache(0, func(i kernels.Image) (string, error) {
		mu.Lock()
		loaded[i.Name()]++
		first := loaded[i.Name()] == 1
		mu.Unlock()
		if first {
			begun.Done()
			begun.Wait() // until the other image is loading
			if i.Name() == "bad" {
				return "", failed
			}
		}
		return i.Name(), nil
	}, func(string) error { return nil })
	const users = 8
	entries, errs := make([]*cached[string], 2*users), make([]error, 2*users)
	var waiting []*cached[string] // so that all of them are users of one entry
	for _, image := range []kernels.Image{fake("good"), fake("bad")} {
		waiting = append(waiting, c.enter(image))
	}
	var all sync.WaitGroup
	for i := range 2 * users {
		all.Go(func() { entries[i], errs[i] = c.acquire([]kernels.Image{fake("good"), fake("bad")}[i%2]) })
	}
	all.Wait()
	for i, err := range errs {
		if want := []error{nil, failed}[i%2]; !errors.Is(err, want) || (entries[i] == nil) != (want != nil) {
			t.Errorf("user %d of %d: got entry %v, error %v, want error %v", i, 2*users, entries[i], err, want)
		}
	}
	if loaded["good"] != 1 || loaded["bad"] != 1 {
		t.Errorf("loaded %v, want each once", loaded)
	}
	for _, e := range waiting {
		release(t, c, e)
	}
	if len(c.loaded) != 1 {
		t.Errorf("%d entries while one image is in use", len(c.loaded))
	}
	if e := acquire(t, c, fake("bad")); e.module() != "bad" {
		t.Error("what has failed is not tried again")
	}
}
