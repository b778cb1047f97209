package opspec

import "github.com/stheno-ml/stheno/kernels/versions"

func addVersionCases() (cases []Case) {
	for v := 1; v <= len(versions.Docs("Add")); v++ {
		build := binary(versions.Version(v).Add)
		for _, s := range [][]int{{1}, {513}, {100003}, {2, 3, 4, 5}} {
			cases = append(cases, versioned(v, addCase(s...), build))
		}
		cases = append(cases, versioned(v, timed("2^28", addCase(1<<28)), build))
	}
	return cases
}
