//go:build stheno_sm100 || !(stheno_sm70 || stheno_sm80 || stheno_sm90 || stheno_sm120)

package kernels

import "embed"

//go:embed images/*.sm_100.cubin.* prebuilt/sm_100.archive
var sm100 embed.FS

func init() { embedded["sm_100"] = sm100 }
