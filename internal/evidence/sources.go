package evidence

import (
	"maps"

	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// sources returns the digests of all sources of Stheno, the versions among them.
func sources() results.Digests {
	all := results.Digests(kernels.Digests())
	maps.Copy(all, versions.Library().Digests())
	return all
}
