//go:build stheno_sm70 || !(stheno_sm80 || stheno_sm90 || stheno_sm100 || stheno_sm120)

package kernels

import "embed"

//go:embed images/*.sm_70.cubin.* prebuilt/sm_70.archive
var sm70 embed.FS

func init() { embedded["sm_70"] = sm70 }
