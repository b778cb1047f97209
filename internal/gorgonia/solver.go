package gorgonia

import (
	"fmt"
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"
)

// SolverKind names one of Gorgonia's solvers by its type.
type SolverKind string

// The solvers of Gorgonia v0.9.18.
const (
	Vanilla         SolverKind = "VanillaSolver"
	Momentum        SolverKind = "Momentum"
	RMSProp         SolverKind = "RMSPropSolver"
	Adam            SolverKind = "AdamSolver"
	AdamW           SolverKind = "AdamW"
	AdaGrad         SolverKind = "AdaGradSolver"
	BarzilaiBorwein SolverKind = "BarzilaiBorweinSolver"
)

// SGD is PyTorch's rule with the options of a Momentum: see [SolverReader.AsSGD].
const SGD SolverKind = "SGD"

// Solver holds the options of one of Gorgonia's solvers as they are now, 0 and false for those that
// its kind does not have.
type Solver struct {
	Kind                      SolverKind
	Rate                      float64
	L1, L2, Clip, Batch       float64
	UseL1, UseL2, UseClip     bool
	Momentum, Rho, Eps        float64 // Rho is the decay of RMSProp
	Beta1, Beta2, WeightDecay float64
	// Stepped reports whether it has made steps, and so has a state, such as moments.
	Stepped bool
}

// solverFields are the fields of a solver by their names in Gorgonia; "" for those that
// it does not have.
type solverFields struct {
	rate, momentum, rho, eps, beta1, beta2, weightDecay string
	l1, l2, useL1, useL2, batch                         string
	iterations, state                                   string
}

// solverKinds has no types: with them, each program would hold all solvers.
var solverKinds = map[SolverKind]solverFields{
	Vanilla: {rate: "eta", l1: "l1reg", l2: "l2reg", useL1: "useL1Reg", useL2: "useL2Reg", batch: "batch"},
	Momentum: {rate: "eta", momentum: "momentum",
		l1: "l1reg", l2: "l2reg", useL1: "useL1Reg", useL2: "useL2Reg", batch: "batch", state: "cache"},
	RMSProp: {rate: "eta", rho: "decay", eps: "eps", l2: "l2reg", useL2: "useL2Reg", state: "cache"},
	Adam: {rate: "eta", eps: "eps", beta1: "beta1", beta2: "beta2",
		l1: "l1reg", l2: "l2reg", useL1: "useL1Reg", useL2: "useL2Reg", batch: "batch", iterations: "iter", state: "cache"},
	AdamW: {rate: "η", eps: "ɛ", beta1: "β1", beta2: "β2", weightDecay: "λ",
		l1: "l1reg", l2: "l2reg", useL1: "useL1Reg", useL2: "useL2Reg", batch: "batch", iterations: "iter", state: "states"},
	AdaGrad:         {rate: "eta", eps: "eps", l2: "l2reg", useL2: "useL2Reg", state: "cache"},
	BarzilaiBorwein: {rate: "eta", state: "prevDV"},
}

// ReadSolver reads the options of one of Gorgonia's solvers. ok is false for a solver of another
// module; it is an error if this version of Gorgonia has other fields.
func ReadSolver(s gorgonia.Solver) (out Solver, ok bool, err error) {
	r, err := NewSolverReader(s)
	if r == nil || err != nil {
		return out, false, err
	}
	return r.Read(), true, nil
}

// SolverReader reads the options of a solver repeatedly.
type SolverReader struct {
	kind   SolverKind
	names  solverFields
	fields map[string]reflect.Value
	of     reflect.Value
	err    error
}

// NewSolverReader returns a reader of one of Gorgonia's solvers, nil for a solver of another
// module. It is an error if this version of Gorgonia has other fields.
func NewSolverReader(s gorgonia.Solver) (*SolverReader, error) {
	kind := SolverKind(typeName(s))
	names, ok := solverKinds[kind]
	v := reflect.ValueOf(s)
	if !ok || v.Kind() != reflect.Pointer {
		return nil, nil
	}
	if v.IsNil() {
		return nil, fmt.Errorf("got a nil *gorgonia.%s", kind)
	}
	r := &SolverReader{kind: kind, names: names, fields: map[string]reflect.Value{}, of: v.Elem()}
	r.Read()
	if r.err != nil {
		return nil, r.err
	}
	return r, nil
}

// AsSGD makes the options those of an SGD, if they are of a Momentum.
func (r *SolverReader) AsSGD() {
	if r != nil && r.kind == Momentum {
		r.kind = SGD
	}
}

// Read returns the options as they are now.
func (r *SolverReader) Read() Solver {
	f := r.names
	return Solver{
		Kind: r.kind, Rate: r.number(f.rate),
		L1: r.number(f.l1), L2: r.number(f.l2), Clip: r.number("clip"), Batch: r.number(f.batch),
		UseL1: r.flag(f.useL1), UseL2: r.flag(f.useL2), UseClip: r.flag("useClip"),
		Momentum: r.number(f.momentum), Rho: r.number(f.rho), Eps: r.number(f.eps),
		Beta1: r.number(f.beta1), Beta2: r.number(f.beta2), WeightDecay: r.number(f.weightDecay),
		Stepped: r.number(f.iterations) > 0 || r.length(f.state) > 0,
	}
}

// field returns a field by its name in each kind of solver, looked up once; false for no name.
func (r *SolverReader) field(name string, kinds ...reflect.Kind) (f reflect.Value, ok bool) {
	if name == "" {
		return f, false
	}
	if f, ok = r.fields[name]; ok {
		return f, true
	}
	if f = r.of.FieldByName(name); f.IsValid() && slices.Contains(kinds, f.Kind()) {
		r.fields[name] = f
		return f, true
	}
	if r.err == nil {
		r.err = fmt.Errorf("a %v of this version of Gorgonia has no %v %q: want v0.9.18", r.of.Type(), kinds[0], name)
	}
	return f, false
}

func (r *SolverReader) number(name string) float64 {
	f, ok := r.field(name, reflect.Float64, reflect.Int)
	switch {
	case !ok:
		return 0
	case f.CanInt():
		return float64(f.Int())
	}
	return f.Float()
}

func (r *SolverReader) flag(name string) bool {
	f, ok := r.field(name, reflect.Bool)
	return ok && f.Bool()
}

func (r *SolverReader) length(name string) int {
	if f, ok := r.field(name, reflect.Slice, reflect.Map); ok {
		return f.Len()
	}
	return 0
}
