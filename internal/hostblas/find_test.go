package hostblas

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gonum.org/v1/gonum/blas/gonum"
)

// find tries the libraries that a wish allows, in order, and reports their faults.
func TestFind(t *testing.T) {
	defer func(all []kind) { searched = all }(searched)
	searched = []kind{{"openblas", []string{"a.so", "b.so"}}, {"blis", []string{"c.so"}}}
	for _, c := range []struct {
		wish     string
		there    string // those that can be used
		bad      string // those that are refused
		tried    string
		err, why string // of the outcome
	}{
		{wish: "", there: "a.so c.so", tried: "a.so"},
		{wish: "", there: "c.so", tried: "a.so b.so c.so"},
		{wish: "", there: "b.so", bad: "a.so", tried: "a.so b.so"},
		{wish: "", tried: "a.so b.so c.so", why: "no openblas, blis library can be used: a.so: there is no such library"},
		{wish: "", bad: "b.so", tried: "a.so b.so c.so", why: "no openblas, blis library can be used: b.so is wrong"},
		{wish: "gonum", there: "a.so", why: "STHENO_BLAS=gonum"},
		{wish: "blis", there: "a.so c.so", tried: "c.so"},
		{wish: "blis", there: "a.so", tried: "c.so", err: "hostblas: STHENO_BLAS=blis: c.so: there is no such library"},
		{wish: "blis", bad: "c.so", tried: "c.so", err: "hostblas: STHENO_BLAS=blis: c.so is wrong"},
		{wish: "/x/d.so", there: "/x/d.so", tried: "/x/d.so"},
		{wish: "d.so", there: "a.so", tried: "d.so", err: "d.so: there is no such library"},
		{wish: "mkl", err: "STHENO_BLAS=mkl: its names are not known on this system"},
		{wish: "atlas", err: "got STHENO_BLAS=atlas, want gonum, openblas, blis, mkl, accelerate, or the file"},
	} {
		var tried []string
		got := find(c.wish, func(file string) (*Library, error) {
			tried = append(tried, file)
			switch {
			case slices.Contains(strings.Fields(c.there), file):
				return &Library{file: file}, nil
			case slices.Contains(strings.Fields(c.bad), file):
				return nil, errors.New(file + " is wrong")
			}
			return nil, fmt.Errorf("%s: %w", file, errAbsent)
		})
		if all := strings.Join(tried, " "); all != c.tried {
			t.Errorf("%q: tried %q, want %q", c.wish, all, c.tried)
		}
		if want := c.err == "" && c.why == ""; want != (got.library != nil) || want && got.library.file != tried[len(tried)-1] {
			t.Errorf("%q: got library %v, want one: %v", c.wish, got.library, want)
		}
		if (c.err == "") != (got.err == nil) || c.err != "" && !strings.Contains(got.err.Error(), c.err) {
			t.Errorf("%q: got error %v, want %q", c.wish, got.err, c.err)
		}
		if got.why != c.why {
			t.Errorf("%q: got reason %q, want %q", c.wish, got.why, c.why)
		}
	}
}

// Where no names are known, such as on Windows, a file is all that a library can be.
func TestFindWithoutNames(t *testing.T) {
	defer func(all []kind) { searched = all }(searched)
	searched = nil
	open := func(file string) (*Library, error) { return &Library{file: file}, nil }
	if got := find("", open); got.library != nil || got.why != "no library is looked for on this system; STHENO_BLAS can name the file of one" {
		t.Errorf("got %+v, want no library and why", got)
	}
	if got := find(`C:\blas.dll`, open); got.library == nil || got.library.file != `C:\blas.dll` {
		t.Errorf("got %+v, want the file", got)
	}
}

// users is a BLAS of the user's.
type users struct{ gonum.Implementation }

// The user's BLAS multiplies, and no library is looked for.
func TestForUsersBLAS(t *testing.T) {
	got, err := For(users{})
	if _, ok := got.(users); err != nil || !ok {
		t.Errorf("For gives %T and error %v, want the user's", got, err)
	}
	if got := Describe(users{}); got != "the BLAS given to gorgonia.Use, hostblas.users" {
		t.Errorf("Describe says %q", got)
	}
}

// The environment variable chooses, in a process of its own.
func TestVariable(t *testing.T) {
	if os.Getenv("STHENO_PROGRAM") != "" {
		b, err := For(gonum.Implementation{})
		fmt.Printf("For gives %T, %v\nDescribe: %s\n", b, err, Describe(b))
		return
	}
	for wish, want := range map[string]string{
		"gonum":          "For gives hostblas.onDemand, <nil>\nDescribe: gonum: STHENO_BLAS=gonum\n",
		"atlas":          "For gives <nil>, hostblas: got STHENO_BLAS=atlas, want gonum,",
		"./none/here.so": "For gives <nil>, hostblas: STHENO_BLAS=./none/here.so: ./none/here.so: ",
	} {
		c := exec.Command(os.Args[0], "-test.run=^TestVariable$")
		c.Env = append(os.Environ(), "STHENO_PROGRAM=variable", Variable+"="+wish)
		out, err := c.CombinedOutput()
		testutil.Do(t, err)
		if !strings.Contains(string(out), want) { // under the tag cuda Gorgonia prints a line first
			t.Errorf("%s=%s: got %s\nwant %s", Variable, wish, out, want)
		}
	}
}
