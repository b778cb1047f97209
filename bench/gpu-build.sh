#!/usr/bin/env bash
# Builds what bench/gpu-run.sh runs on a GPU machine that has no Go: the test
# binary of every package that has tests, cmd/stheno, and the notebooks in
# examples/[0-9]*, packed as .gpu/bin.tar.xz. Wants Go 1.26, python3 and xz; no
# GPU and no C compiler.
#
#   bench/gpu-build.sh          for linux/amd64
#   GOARCH=arm64 bench/gpu-build.sh
#   TAG=1 bench/gpu-build.sh    the tests of Gorgonia's own CUDA machine too: wants a
#                               C compiler and a toolkit (make tag-toolkit)
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOOS=linux GOARCH=${GOARCH:-amd64}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

go build -trimpath -ldflags='-s -w' -o "$bin/stheno" ./cmd/stheno
for notebook in examples/[0-9]*/main.go; do
    [[ -f $notebook ]] || continue
    dir=$(dirname "$notebook")
    go build -trimpath -ldflags='-s -w' -o "$bin/notebook-$(basename "$dir")" "./$dir"
done
module=$(go list -m)
# tests.txt: name of the binary, folder to run it in. Four packages are left out:
# internal/results and internal/evidence test what the run is about to replace, and internal/readme and
# cudaops/compat run Go.
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -v -E '/(internal/(results|evidence|readme)|cudaops/compat)$' | while read -r package; do
    dir=.${package#"$module"}
    name=${dir#./}
    [[ $dir == . ]] && name=stheno-module
    name=${name//\//-}.test
    go test -c -trimpath -ldflags='-s -w' -o "$bin/$name" "$dir"
    printf '%s\t%s\n' "$name" "$dir" >> "$bin/tests.txt"
done

# The text whose letters are counted, which comes with Go's sources.
cp "$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt" "$bin/"

if [[ -n ${TAG:-} ]]; then
    settings=$(go run ./cmd/stheno env)
    (
        eval "$settings"
        for name in module:. tape:cudaops/tape cudaops:cudaops ops:ops; do
            go test -c -tags cuda -trimpath -ldflags='-s -w' -o "$bin/tag-${name%:*}.test" "./${name#*:}"
        done
        go build -tags cuda -trimpath -ldflags='-s -w' -o "$bin/tagrecord" ./internal/tagrecord
    )
fi

mkdir -p .gpu
# One dictionary over all binaries: they share most of their code.
tar -C "$bin" -c . | xz -T1 --lzma2=preset=3,dict=256MiB > .gpu/bin.tar.xz
cat "$bin/tests.txt"
ls -l .gpu/bin.tar.xz
