package checkpoint

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
)

// LoadOption is an option of [LoadParameters] and [LoadStore].
type LoadOption func(*loading)

type loading struct {
	partial    bool
	rename     func(name string) string
	transposed func(name string) bool
}

// Loaded describes what [LoadParameters] and [LoadStore] have read.
type Loaded struct {
	// Note says why the content is unchecked: the file has no checksum of Stheno. It is "" for a file with a checksum.
	Note string
	// Missing and Unused are only filled under [Partial], which allows them: names without a tensor in the file, and names of
	// tensors in the file that nothing has taken.
	Missing, Unused []string
}

// Partial loads what both the file and the graph or the [cudaops.Store] have. Other nodes and parameters keep their values.
// Without it, a node without a tensor is an error, as is a tensor without a node; a Store adds such tensors.
func Partial() LoadOption { return func(l *loading) { l.partial = true } }

// Rename maps the name of each tensor in the file to the name of a node, or of a parameter of a Store. A tensor renamed to "" is
// ignored. Two tensors with one name are an error.
func Rename(f func(name string) string) LoadOption { return func(l *loading) { l.rename = f } }

// Transposed transposes the tensors for which f returns true, of two axes each. The name is that of a node or a parameter, after
// [Rename]. A file of GPT-2 has weights of shape (in, out), one of PyTorch's nn.Linear of (out, in).
func Transposed(f func(name string) bool) LoadOption {
	return func(l *loading) { l.transposed = f }
}

// newLoading returns what options select.
func newLoading(opts []LoadOption) (l loading, err error) {
	for _, o := range opts {
		if o == nil {
			return l, fmt.Errorf("got a nil option")
		}
		o(&l)
	}
	return l, nil
}

// transposes reports whether a tensor is transposed.
func (l *loading) transposes(name string) bool { return l.transposed != nil && l.transposed(name) }

// found is a tensor of a file and the name of its node or parameter.
type found struct {
	*safetensors.Tensor
	as string
}

// find returns the tensors to load, in the order of the file. A file of Stheno has other tensors too, which ignore names; these
// are loaded only under another name.
func (l *loading) find(f *file, ignore map[string]bool) (list []found, err error) {
	from := map[string]string{}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		name := t.Name
		if l.rename != nil {
			name = l.rename(name)
		}
		if name == "" || name == t.Name && ignore[name] {
			continue
		}
		if before, twice := from[name]; twice {
			return nil, fmt.Errorf("got the tensors %q and %q for %s, want one", before, t.Name, name)
		}
		from[name] = t.Name
		list = append(list, found{t, name})
	}
	return list, nil
}

// end completes the result: unless loading is partial, it returns an error if names are missing or unused.
func (l *loading) end(f *file, missing, unused []string) (Loaded, error) {
	switch {
	case l.partial, len(missing)+len(unused) == 0:
		return Loaded{f.note, missing, unused}, nil
	case len(unused) == 0:
		return Loaded{}, fmt.Errorf("got a file without the tensors %s, want them or the option Partial", quoted(missing))
	case len(missing) == 0:
		return Loaded{}, fmt.Errorf("got a file with the tensors %s, want only those of the nodes and of their BatchNorms, or the option Partial", quoted(unused))
	}
	return Loaded{}, fmt.Errorf("got a file without the tensors %s and with %s, want all tensors of the nodes and no others, or the options Rename or Partial",
		quoted(missing), quoted(unused))
}

// quoted lists names, not more than a few.
func quoted(names []string) string {
	const most = 10
	var b strings.Builder
	for i, name := range names[:min(most, len(names))] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", name)
	}
	if more := len(names) - most; more > 0 {
		fmt.Fprintf(&b, " and %d others", more)
	}
	return b.String()
}
