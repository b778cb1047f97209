package kernels

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// Check returns an error if something is wrong with a library or with plans that launch its
// kernels. Call it in a test of the library's module, on plans of all kinds: it needs no GPU.
//
// The images must be made of the sources: every source is compiled, has not changed since, and its images are complete. Every kernel that
// [Library.Kernel] made must be an entry point of its image. The launches of the plans, of kernels of any image, must have the arguments that the
// entry point takes, in number, size and kind, a number of threads that it allows, and operands that the plan has. The Go body of a kernel of a
// library must take the same arguments, and float32 or float64 where the entry point does: it is run on zeros, for plans of less than a megabyte.
func Check(l *Library, plans ...*Plan) error {
	whole := l
	if l == own {
		whole = withSources()
	}
	err := whole.checkImages()
	if err == nil {
		err = l.checkEntries()
	}
	if err != nil {
		return l.named(err)
	}
	var c Checker
	for _, p := range plans {
		if err := c.Check(p); err != nil {
			return err
		}
	}
	return nil
}

// Checker compares plans with the entry points that they launch, as [Check] does. It checks a kernel
// once. The zero value is ready; it is for one goroutine.
type Checker struct {
	signatures map[Image]map[string]signature
	run        map[*Kernel]bool // their Go bodies
}

// Check returns an error if something is wrong with the launches of a plan.
func (c *Checker) Check(p *Plan) error {
	if p == nil {
		return errors.New("got no plan")
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		if l.Kernel == nil {
			return fmt.Errorf("%s: launch %d: got no kernel", p.Op, i+1)
		}
		s, err := c.launch(p, l)
		if err == nil {
			err = c.body(p, l, s)
		}
		if err != nil {
			return fmt.Errorf("%s: launch %d, %s: %w", p.Op, i+1, l.Kernel.Entry, err)
		}
	}
	return nil
}

// CheckLaunch returns an error if something is wrong with a launch of a plan. It does not run the Go body. The error wraps [errors.ErrUnsupported] if the kernel's image
// does not describe its entry points, as code that is not PTX.
func (c *Checker) CheckLaunch(p *Plan, l *Launch) error {
	_, err := c.launch(p, l)
	return err
}

// launch compares a launch with its entry point, and returns the entry point's signature.
func (c *Checker) launch(p *Plan, l *Launch) (s signature, err error) {
	if c == nil || p == nil || l == nil || l.Kernel == nil {
		return s, errors.New("got a nil checker, plan, launch or kernel")
	}
	image := l.Kernel.Image
	safe, err := Load(image)
	if err != nil {
		return s, err
	}
	entries, ok := c.signatures[image]
	if !ok {
		if entries, err = imageSignatures(image, safe); err != nil {
			return s, err
		}
		if c.signatures == nil {
			c.signatures, c.run = map[Image]map[string]signature{}, map[*Kernel]bool{}
		}
		c.signatures[image] = entries
	}
	if s, ok = entries[l.Kernel.Entry]; !ok {
		return s, noEntry(l.Kernel.Entry, safe.Name(), entries)
	}
	return s, s.check(p, l)
}

// body compares the Go body of a launch's kernel with its entry point.
func (c *Checker) body(p *Plan, l *Launch, s signature) error {
	const most = 1 << 20
	if _, ok := l.Kernel.Image.(compiled); !ok || l.Kernel.Body == nil || c.run[l.Kernel] || p.Bytes()+p.Scratch > most {
		return nil // generated code and its Go body come from one function
	}
	c.run[l.Kernel] = true
	return s.checkBody(p, l)
}

// checkEntries compares the kernels that Kernel made with the images.
func (l *Library) checkEntries() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for made := range l.entries {
		s, err := l.source(made.stem)
		if err != nil {
			return err
		}
		for _, i := range s.Images {
			if i.Target == manifest.PTX { // the compiler reports nothing about its kernels
				continue
			}
			names := map[string]bool{}
			for _, k := range i.Kernels {
				names[k.Name] = true
			}
			if !names[made.name] {
				return noEntry(made.name, s.Stem+".cu for "+i.Target, names)
			}
		}
	}
	return nil
}

func (l *Library) checkImages() error {
	m, err := l.load()
	if err != nil {
		return err
	}
	files, err := l.paths()
	if err != nil {
		return err
	}
	stems := files.Stems()
	if len(stems) == 0 {
		return fmt.Errorf("no source *.cu")
	}
	for _, stem := range stems {
		if err := l.checkSource(stem); err != nil {
			return err
		}
	}
	for _, s := range m.Sources {
		if !slices.Contains(stems, s.Stem) {
			return fmt.Errorf("there are images of %s.cu, which is gone: compile again", s.Stem)
		}
	}
	return nil
}

// checkSource compares a source with the manifest and with its images.
func (l *Library) checkSource(stem string) error {
	file := stem + ".cu"
	s, err := l.source(stem)
	if err != nil {
		return err
	}
	hash, err := manifest.SourceHash(l.readSource, file)
	if err != nil {
		return err
	}
	if hash != s.Hash {
		return fmt.Errorf("%s or a header that it includes has changed since it was compiled: compile it again", file)
	}
	var targets []string
	for _, i := range s.Images {
		targets = append(targets, i.Target)
	}
	if !manifest.Subset(targets) {
		return fmt.Errorf("%s is compiled for %v, want some of %v, %s among them", file, targets, manifest.Targets, manifest.PTX)
	}
	text, err := l.readSource(file)
	if err != nil {
		return err
	}
	return s.Check(text, targets, l.readPacked)
}
