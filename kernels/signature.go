package kernels

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// signature lists the parameters of a PTX entry point.
type signature struct {
	params     []param
	maxThreads int // max threads a block, 0 if the entry point declares no limit
	code       string
	addresses  map[string]int // parameters by the registers that first hold their addresses
}

// param is a parameter of an entry point.
type param struct {
	kind    string // "32-bit integer", "64-bit integer", "float32", "float64", or PTX's own word for another type
	pointer bool   // is converted to an address in global memory, so that it must be one
}

var (
	entryHead   = regexp.MustCompile(`^\s*(\w+)\s*\(([^)]*)\)`)
	entryParam  = regexp.MustCompile(`\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,]*?(\w+)(\[\d+\])?\s*(?:,|$)`)
	entryLimit  = regexp.MustCompile(`(?m)^\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?`)
	paramLoad   = regexp.MustCompile(`ld\.param\.[us]64\s+(%\w+), \[(\w+)\];`)
	paramGlobal = regexp.MustCompile(`cvta\.to\.global\.u64\s+(%\w+), (%\w+);`)
)

// paramKinds are the kinds by PTX type.
var paramKinds = map[string]string{
	"u32": "32-bit integer", "s32": "32-bit integer", "b32": "32-bit integer",
	"u64": "64-bit integer", "s64": "64-bit integer", "b64": "64-bit integer",
	"f32": "float32", "f64": "float64",
}

// tensorMapKind is the kind of a parameter that is a [TensorMap].
const tensorMapKind = "b8[128]"

// signatures reads the entry points in PTX.
func signatures(ptx string) map[string]signature {
	entries := map[string]signature{}
	for i, text := range strings.Split(ptx, ".entry ") {
		head := entryHead.FindStringSubmatch(text)
		if i == 0 || head == nil {
			continue
		}
		s := signature{code: text, addresses: map[string]int{}}
		var names []string
		for _, m := range entryParam.FindAllStringSubmatch(head[2], -1) {
			s.params = append(s.params, param{kind: cmp.Or(paramKinds[m[1]], m[1]+m[3])})
			names = append(names, m[2])
		}
		loaded := map[string]int{} // parameter by the register that holds it
		for _, m := range paramLoad.FindAllStringSubmatch(text, -1) {
			if n := slices.Index(names, m[2]); n >= 0 {
				loaded[m[1]] = n
			}
		}
		for _, m := range paramGlobal.FindAllStringSubmatch(text, -1) {
			if n, ok := loaded[m[2]]; ok {
				s.params[n].pointer = true
				s.addresses[m[1]] = n
			}
		}
		if m := entryLimit.FindStringSubmatch(text); m != nil {
			s.maxThreads = 1
			for _, extent := range m[1:] {
				if n, err := strconv.Atoi(extent); err == nil {
					s.maxThreads *= n
				}
			}
		}
		entries[head[1]] = s
	}
	return entries
}

// imageSignatures returns the entry points of an image, from its PTX. safe is the image as [Load] returns it.
func imageSignatures(image, safe Image) (map[string]signature, error) {
	var text []byte
	if g, ok := image.(Generated); ok {
		ptx, err := g.PTX(9)
		if err != nil {
			return nil, err
		}
		text = ptx
	} else if c, ok := image.(compiled); ok {
		if _, err := c.library.source(c.stem); err != nil {
			return nil, err
		}
		var err error
		if text, err = c.library.readImage(c.stem, manifest.PTX); err != nil {
			return nil, err
		}
	} else {
		code, err := safe.Code(9, 0)
		if err != nil {
			return nil, err
		}
		if code.Target != manifest.PTX {
			return nil, fmt.Errorf("got code for %s, want %s, which describes the arguments of entry points: %w", code.Target, manifest.PTX, errors.ErrUnsupported)
		}
		text = code.Text
	}
	return signatures(string(text)), nil
}

// check compares a launch with the signature of its entry point.
func (s signature) check(p *Plan, l *Launch) error {
	if len(l.Args) != len(s.params) {
		return fmt.Errorf("got %d arguments, want %d", len(l.Args), len(s.params))
	}
	for i, a := range l.Args {
		want := s.params[i]
		got := fmt.Sprintf("a %T", a)
		kind := ""
		switch a := a.(type) {
		case Ref:
			kind = "64-bit integer"
			if err := p.checkRef(a); err != nil {
				return fmt.Errorf("argument %d: %w", i, err)
			}
		case TensorMap:
			kind = tensorMapKind
			if err := p.checkTensorMap(a); err != nil {
				return fmt.Errorf("argument %d: %w", i, err)
			}
		case int32:
			kind = "32-bit integer"
		case int64:
			if kind = "64-bit integer"; want.pointer {
				return fmt.Errorf("argument %d: got an int64, want a Ref", i)
			}
		case float32, float64:
			kind = fmt.Sprintf("%T", a)
		}
		if kind != want.kind {
			return fmt.Errorf("argument %d: got %s, want a %s", i, got, want.kind)
		}
	}
	return l.checkExtents(s.maxThreads)
}

// noEntry is the error for an entry point that does not exist, with the most similar names.
func noEntry[T any](name, image string, entries map[string]T) error {
	names := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		return cmp.Or(cmp.Compare(distance(name, a), distance(name, b)), strings.Compare(a, b))
	})
	if len(names) == 0 {
		return fmt.Errorf("no entry point %s in %s, which has none", name, image)
	}
	return fmt.Errorf("no entry point %s in %s: the nearest are %s", name, image, strings.Join(names[:min(3, len(names))], ", "))
}

// distance returns the number of characters to insert, delete or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of the prefix of a so far, to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of one character of a less and one of b less
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
