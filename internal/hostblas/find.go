package hostblas

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A kind is a vendor's libraries with the names that they have on this system, in the order in
// which they are tried.
type kind struct {
	name  string
	files []string
}

// find opens the first usable library that wish, the value of [Variable], allows.
func find(wish string, open func(string) (*Library, error)) found {
	files, err := candidates(wish)
	if err != nil {
		return found{err: err}
	}
	switch {
	case wish == "gonum":
		return found{why: fmt.Sprintf("%s=%s", Variable, wish)}
	case len(files) == 0:
		return found{why: fmt.Sprintf("no library is looked for on this system; %s can name the file of one", Variable)}
	}
	var absent, refused []error
	for _, file := range files {
		l, err := open(file)
		switch {
		case err == nil:
			return found{library: l}
		case errors.Is(err, errAbsent):
			absent = append(absent, err)
		default:
			refused = append(refused, err)
		}
	}
	if len(refused) == 0 {
		refused = absent[:1]
	}
	err = oneLine(refused)
	if wish != "" {
		return found{err: fmt.Errorf("hostblas: %s=%s: %w", Variable, wish, err)}
	}
	return found{why: fmt.Sprintf("no %s library can be used: %v", names(), err)}
}

// candidates returns the files to try for a wish, none for gonum's BLAS.
func candidates(wish string) (files []string, err error) {
	if wish == "gonum" {
		return nil, nil
	}
	for _, k := range searched {
		if wish == "" || wish == k.name {
			files = append(files, k.files...)
		}
	}
	if strings.ContainsAny(wish, `./\`) {
		files = []string{wish}
	}
	switch {
	case len(files) > 0:
		return files, nil
	case wish == "":
		return nil, nil
	case slices.Contains([]string{"openblas", "blis", "mkl", "accelerate"}, wish):
		return nil, fmt.Errorf("hostblas: %s=%s: its names are not known on this system: want the file of a library", Variable, wish)
	}
	return nil, fmt.Errorf("hostblas: got %s=%s, want gonum, openblas, blis, mkl, accelerate, or the file of a library with a dot or a slash in it", Variable, wish)
}

func names() string {
	var all []string
	for _, k := range searched {
		all = append(all, k.name)
	}
	return strings.Join(all, ", ")
}

// oneLine joins errors.
func oneLine(errs []error) error {
	var text []string
	for _, e := range errs {
		text = append(text, e.Error())
	}
	return errors.New(strings.Join(text, "; "))
}
