package toolkit

import (
	"fmt"
	"strings"
)

// A Release is a CUDA and a cuDNN that are available as Python wheels. Wheels need no root and no
// GPU, and several releases can be installed side by side.
type Release struct {
	CUDA, CUDNN string   // 13.0 and 9
	Wheels      []string // name==version
}

// Name is the release's folder in .cuda.
func (r Release) Name() string { return r.CUDA + "-cudnn" + r.CUDNN }

// Install is the command that installs the wheels into a folder.
func (r Release) Install(dir string) []string {
	return append([]string{"python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
		"--no-compile", "--no-deps", "--target", dir}, r.Wheels...)
}

// Releases are the releases that the tag is tried with. The first is the one
// that CI takes and that is proposed where nothing else is known. In the wheels
// for CUDA 11 and 12, crt/host_defines.h is in the compiler's. There is no
// cuDNN 8 for CUDA 13.
var Releases = []Release{
	{"13.0", "9", append(cuda130, "nvidia-cudnn-cu13==9.28.0.42")},
	{"13.5", "9", append(cuda135, "nvidia-cudnn-cu13==9.28.0.42")},
	{"12.9", "9", append(cuda129, "nvidia-cudnn-cu12==9.28.0.42")},
	{"12.9", "8", append(cuda129, "nvidia-cudnn-cu12==8.9.7.29")},
	{"12.4", "9", append(cuda124, "nvidia-cudnn-cu12==9.28.0.42")},
	{"12.4", "8", append(cuda124, "nvidia-cudnn-cu12==8.9.7.29")},
	{"11.8", "9", append(cuda118, "nvidia-cudnn-cu11==9.10.2.21")},
	{"11.8", "8", append(cuda118, "nvidia-cudnn-cu11==8.9.6.50")},
}

var (
	cuda135 = list("nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cuda-cccl==13.3.5.0.6 nvidia-cublas==13.10.0.20")
	cuda130 = list("nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.1.3")
	cuda129 = list("nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-cccl-cu12==12.9.27 nvidia-cublas-cu12==12.9.1.4")
	cuda124 = list("nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-cccl-cu12==12.4.127.post1 nvidia-cublas-cu12==12.4.5.8")
	cuda118 = list("nvidia-cuda-runtime-cu11==11.8.89 nvidia-cuda-nvcc-cu11==11.8.89 nvidia-cublas-cu11==11.11.3.6")
)

// list has no spare capacity, so that two appends to it do not share memory.
func list(s string) []string {
	all := strings.Fields(s)
	return all[:len(all):len(all)]
}

// Advice describes how to get the missing parts.
func (m *Missing) Advice() string {
	best := Releases[0]
	for _, r := range Releases {
		if r.CUDNN == "9" && r.CUDA == m.CUDA {
			best = r
		}
	}
	return fmt.Sprintf(`To get all of it as wheels (1 to 2 GB), with no root and no GPU, where 'stheno env' finds it unless CUDA_HOME or CUDA_PATH is set:
    %s
Or install CUDA and cuDNN with NVIDIA's packages; CUDA_HOME and CUDNN_HOME say where they are, if not in the usual places.
Without the tag nothing of this is needed: stheno.NewVM runs on the GPU with the driver alone.`,
		strings.Join(best.Install(".cuda/"+best.Name()), " "))
}
