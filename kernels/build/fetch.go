package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wheels are the Python packages that hold the compiler, NVRTC, and the headers that it
// includes. Their versions decide the images' bytes.
var wheels = []string{"nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-nvcc-cu12==12.9.86", "nvidia-cuda-cccl-cu12==12.9.27"}

// errSystem names the systems that compile kernels, and what works elsewhere.
var errSystem = errors.New(`kernels are compiled on Linux (amd64 or arm64): NVIDIA has no compiler for macOS, and this program does not call the one for Windows.
Run it in WSL, in a container or in a virtual machine, on the same folder, and commit the images. With the images there, all else works here:
go build, go test, kernels.Check, and every op by its Go body; on Windows with NVIDIA's driver, the kernels too`)

// fetch unpacks the compiler into a folder, unless it is there.
func fetch(toolkit string, log io.Writer) error {
	versions, all := filepath.Join(toolkit, "versions"), strings.Join(wheels, " ")
	if have, err := os.ReadFile(versions); err == nil && strings.TrimSpace(string(have)) == all {
		fmt.Fprintf(log, "%s has the compiler already: %s\n", toolkit, all)
		return nil
	}
	if err := supported(); err != nil {
		return err
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("the compiler comes as Python packages, and there is no python3 to fetch them: install python3 and pip, or unpack the wheels of %s from pypi.org into %s", all, toolkit)
	}
	fmt.Fprintf(log, "fetching %s into %s, which takes 340 MB there\n", all, toolkit)
	args := append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", toolkit}, wheels...)
	c := exec.Command(python, args...)
	c.Env = append(os.Environ(), "PIP_ROOT_USER_ACTION=ignore") // the packages go to a folder of their own, so root is as good a user as any
	c.Stdout, c.Stderr = log, log
	if err := c.Run(); err != nil {
		return fmt.Errorf("python3 %s: %w", strings.Join(args, " "), err)
	}
	return os.WriteFile(versions, []byte(all+"\n"), 0o666)
}
