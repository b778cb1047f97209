package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// check returns an error that names the files in the folder of images that do not follow from the sources. It compares the hashes of all sources and
// images with the manifest, and compiles images again until the time limit: first those of sources whose images differ from those of the git revision
// since, if one is given, then others, in random order; all of them with -all.
func (b *builder) check(limit time.Duration, since string) error {
	start := time.Now()
	now, m, err := b.manifests()
	if err != nil {
		return err
	}
	var wrong []error
	for _, s := range now.Sources {
		if before := find(m, s.Stem); before == nil {
			wrong = append(wrong, fmt.Errorf("%s.cu has not been compiled", s.Stem))
		} else if before.Hash != s.Hash {
			wrong = append(wrong, fmt.Errorf("%s.cu or a header that it includes has changed since it was compiled", s.Stem))
		} else if err := b.whole(before); err != nil {
			wrong = append(wrong, err)
		}
	}
	for _, s := range m.Sources {
		if find(now, s.Stem) == nil {
			wrong = append(wrong, fmt.Errorf("there are images of %s.cu, which is gone", s.Stem))
		}
	}
	if !reflect.DeepEqual(m.Flags, now.Flags) {
		wrong = append(wrong, fmt.Errorf("the images were compiled with %q, want %q", m.Flags, now.Flags))
	}
	if len(wrong) > 0 {
		return notBuilt(b.out, wrong)
	}

	if version, err := b.version(); err != nil {
		return err
	} else if version != m.Compiler {
		return fmt.Errorf("the images were compiled by %s, and %s has %s", m.Compiler, b.toolkit, version)
	}
	first, rest, err := b.order(m, since)
	if err != nil {
		return err
	}
	var compiled atomic.Int32
	err = b.each(append(first, rest...), func(j *job) error {
		if !b.all && time.Since(start) > limit {
			return nil
		}
		compiled.Add(1)
		image, _, err := b.image(j.source.Stem, j.target)
		if want := j.source.Images[j.index]; err == nil && !reflect.DeepEqual(image, want) {
			err = fmt.Errorf("%s differs: compiled again it has %d bytes of hash %.12s, the manifest says %d of %.12s", want.File(j.source.Stem), image.Bytes, image.Hash, want.Bytes, want.Hash)
		}
		return err
	})
	if err != nil {
		return notBuilt(b.out, []error{err})
	}
	fmt.Fprintf(b.log, "%s: the hashes of %d sources and their images are right; compiled %d of %d images again (%d are of changed sources), and got the same bytes, in %.1f s\n",
		b.out, len(m.Sources), compiled.Load(), len(first)+len(rest), len(first), time.Since(start).Seconds())
	return nil
}

func notBuilt(images string, wrong []error) error {
	return fmt.Errorf("%s does not belong to the sources, run `make images`:\n%w", images, errors.Join(wrong...))
}

// order returns the jobs of the sources whose images are not those of a git revision, and the other jobs, both in an order drawn at random.
func (b *builder) order(m *manifest.Manifest, since string) (first, rest []*job, err error) {
	then := m
	if since != "" {
		if then, err = b.revision(since); err != nil {
			return nil, nil, err
		}
	}
	for i := range m.Sources {
		s := &m.Sources[i]
		if before := find(then, s.Stem); before == nil || before.Hash != s.Hash || before.Digest() != s.Digest() {
			first = append(first, b.jobsOf(s)...)
		} else {
			rest = append(rest, b.jobsOf(s)...)
		}
	}
	for _, jobs := range [][]*job{first, rest} {
		rand.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	}
	return first, rest, nil
}

// revision reads the manifest of a git revision, an empty one if it has none of this form.
func (b *builder) revision(rev string) (*manifest.Manifest, error) {
	git := func(args ...string) ([]byte, error) {
		c := exec.Command("git", append([]string{"-C", b.out}, args...)...)
		out, err := c.Output()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
		}
		return out, err
	}
	if _, err := git("rev-parse", "--verify", "--quiet", rev+"^{commit}"); err != nil {
		return nil, fmt.Errorf("-since: no revision %q here: %w", rev, err)
	}
	m := new(manifest.Manifest)
	text, err := git("show", rev+":./"+manifest.File)
	if err != nil || json.Unmarshal(text, m) != nil {
		return new(manifest.Manifest), nil // none at that revision, or one of another form
	}
	return m, nil
}
