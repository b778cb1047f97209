//go:build stheno_sm80 || !(stheno_sm70 || stheno_sm90 || stheno_sm100 || stheno_sm120)

package kernels

import "embed"

//go:embed images/*.sm_80.cubin.* prebuilt/sm_80.archive
var sm80 embed.FS

func init() { embedded["sm_80"] = sm80 }
