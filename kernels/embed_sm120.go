//go:build stheno_sm120 || !(stheno_sm70 || stheno_sm80 || stheno_sm90 || stheno_sm100)

package kernels

import "embed"

//go:embed images/*.sm_120.cubin.* prebuilt/sm_120.archive
var sm120 embed.FS

func init() { embedded["sm_120"] = sm120 }
