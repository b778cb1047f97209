package codegen

import (
	"maps"
	"sync"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// functionDigests are digests of the functions of math.cu, see [Digests].
var functionDigests = sync.OnceValues(func() (map[string]string, error) {
	fs, err := MathFunctions()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name, digest := range fs.Digests() {
		all["math/"+name] = digest
	}
	return all, nil
})

// Digests maps all functions of math.cu, such as "math/exp_f32", to digests of their code. A kernel generated of other functions
// stays what it is when one changes.
func Digests() (map[string]string, error) {
	all, err := functionDigests()
	return maps.Clone(all), err
}

// DigestsOf is [Digests] of the functions that f applies.
func DigestsOf(f expr.Func) (map[string]string, error) {
	all, err := functionDigests()
	used := map[string]string{}
	for _, name := range f.Functions() {
		used["math/"+name] = all["math/"+name]
	}
	return used, err
}
