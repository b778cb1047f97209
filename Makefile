# The versions of kernels: for the devices that they were measured on and 8.0, whose tensor cores one uses, and PTX for others.
VERSIONS := -dir kernels/versions -headers kernels -targets sm_80,sm_90a,ptx
# What reads and writes safetensors in the tests of package checkpoint.
PYTHON := safetensors==0.8.0 numpy
# The library of collectives, for the test that resolves its functions.
NCCL := nvidia-nccl-cu12==2.28.9
# CUDA and cuDNN for the tag cuda.
WHEELS := internal/maintain/toolkit/wheels.txt

.PHONY: test hunt conformance release-check toolkit images check-images gpu-tests bench readme gallery site tag-toolkit nccl

test: # every test of every package, with a line for each as it ends
	go run gotest.tools/gotestsum@v1.13.0 --format testname ./...

hunt: # many drawn cases for every property, others each time, some minutes
	go test $$(grep -rl 'testutil\.CheckProperty(' --include='*_test.go' . | xargs -n 1 dirname | sort -u) -rapid.checks 2000 -timeout 1h

conformance: # Gorgonia's own tests and examples and the ONNX operator tests on Stheno, some minutes
	go test -count 1 -timeout 2h -v ./internal/maintain/conformance -run TestConformance -conformance

release-check: # everything must have run on a GPU with the kernels that are there
	STHENO_REQUIRE_EVIDENCE=1 go test -count 1 ./internal/maintain/...
	STHENO_REQUIRE_EVIDENCE=1 go test -count 1 -run RecordIsComplete ./examples/...

toolkit: .toolkit/python/versions # the kernels' compiler, and Python's safetensors, into .toolkit (Linux)
	go run ./kernels/build -fetch

.toolkit/python/versions: Makefile
	python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .toolkit/python $(PYTHON)
	echo "$(PYTHON)" > $@

images: toolkit # compile what changed of the CUDA sources of kernels into kernels/images, of common generated kernels, the versions and the example's kernel
	go run ./kernels/build
	go run ./cudaops/internal/prebuilt
	go run ./kernels/build $(VERSIONS)
	go run ./kernels/build -dir examples/own

check-images: toolkit # compile everything again and compare byte for byte
	go run ./kernels/build -check -all
	go run ./cudaops/internal/prebuilt -check -for 1h
	go run ./kernels/build $(VERSIONS) -check -all
	go run ./kernels/build -dir examples/own -check -all

gpu-tests: # test binaries for a GPU machine that has no Go, into .gpu
	bench/gpu-build.sh

bench: # time every op on this machine's GPU
	go run ./cmd/stheno bench gpu

readme: # the tables of README.md and docs, from the ops and from bench/results, and of what the compiler makes of Gorgonia's ops
	go run ./cmd/stheno maintain tables
	go test -count 1 ./internal/maintain/coverage -run TestTable -update

gallery: # the pages of the notebooks, into docs/gallery, in 2 minutes; no GPU is needed
	for page in examples/[0-9]*; do \
		go run ./$$page -device cpu -html docs/gallery/$$(basename $$page).html -out "" > /dev/null || exit 1; done

site: gallery # README, docs and gallery as plain HTML, into .site
	go run ./internal/maintain/site

tag-toolkit: # CUDA 13.0 and cuDNN 9 for the tag cuda, from wheels, into .cuda
	cmp -s $(WHEELS) .cuda/13.0-cudnn9/wheels.txt || { rm -rf .cuda/13.0-cudnn9 && \
		python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps --target .cuda/13.0-cudnn9 -r $(WHEELS) && \
		cp $(WHEELS) .cuda/13.0-cudnn9; }

nccl: .toolkit/nccl/versions # NCCL without what it depends on, into .toolkit (Linux)

.toolkit/nccl/versions: Makefile
	python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps --upgrade --target .toolkit/nccl $(NCCL)
	echo "$(NCCL)" > $@
