//go:build stheno_sm90 || !(stheno_sm70 || stheno_sm80 || stheno_sm100 || stheno_sm120)

package kernels

import "embed"

//go:embed images/*.sm_90a.cubin.* prebuilt/sm_90a.archive
var sm90 embed.FS

func init() { embedded["sm_90a"] = sm90 }
