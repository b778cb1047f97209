#!/usr/bin/env bash
# Builds what bench/gpu-run.sh runs on a GPU machine that has no Go, packed as
# .gpu/bin.tar.xz. Wants Go 1.26, python3 and xz; no GPU and no C compiler.
#
#   bench/gpu-build.sh                        what gpu-run.sh runs if PARTS is unset there
#   PARTS="graphs steps" bench/gpu-build.sh   what these parts of it run: cmd/stheno, 20 MB packed
#   PARTS=tests bench/gpu-build.sh ./cudaops ./ops/...
#                                             of the part tests, these packages alone
#   GOARCH=arm64 bench/gpu-build.sh           for linux/arm64 instead of linux/amd64
#
#   PARTS   "tests kernels ops" if unset. Every part takes cmd/stheno; tests the test
#           binaries of all packages that have tests, about 100 MB packed, or of those that
#           are named; kernels four of them; gallery the notebooks in examples/[0-9]*. The others,
#           ops, graphs, steps, products and random, take nothing more.
#   NOTEBOOKS  of gallery, the notebooks whose folders match, such as '0[125]*': those with
#           figures of kernels that have changed
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOOS=linux GOARCH=${GOARCH:-amd64}
PARTS=${PARTS:-tests kernels ops}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

for part in $PARTS; do
    case $part in
    tests | kernels | ops | graphs | steps | products | random | gallery) ;;
    *) echo "PARTS: no part $part, want tests, kernels, ops, graphs, steps, products, random, gallery" >&2 && exit 2 ;;
    esac
done

# wanted PART: whether it is one of $PARTS.
wanted() { [[ " $PARTS " == *" $1 "* ]]; }

if (($#)) && ! wanted tests; then
    echo "got the packages $*, want the part tests for them, which $PARTS has not" >&2 && exit 2
fi

# packages ARGUMENT...: the packages with tests of what the parts want. Those of internal/maintain are left out, which
# test what the run is about to replace, and run Go, and so does cudaops/compat.
packages() {
    local list='{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
    if wanted tests; then
        go list -f "$list" "${@:-./...}" | { grep -v -E '/(internal/maintain(/records)?|cudaops/compat)$' || true; }
    fi
    if wanted kernels; then
        go list -f "$list" . ./cudaops/bench ./kernels/attention ./kernels/basic ./ops # the programs of stheno maintain suites
    fi
}

go build -trimpath -ldflags='-s -w' -o "$bin/stheno" ./cmd/stheno
if wanted gallery; then
    for notebook in examples/${NOTEBOOKS:-[0-9]*}/main.go; do
        dir=$(dirname "$notebook")
        go build -trimpath -ldflags='-s -w' -o "$bin/notebook-$(basename "$dir")" "./$dir"
    done
fi
module=$(go list -m)
chosen=$(packages "$@")
# tests.txt: name of the binary, folder to run it in.
touch "$bin/tests.txt"
for package in $(sort -u <<< "$chosen"); do
    dir=.${package#"$module"}
    name=${dir#./}
    [[ $dir == . ]] && name=stheno-module
    name=${name//\//-}.test
    go test -c -trimpath -ldflags='-s -w' -o "$bin/$name" "$dir"
    printf '%s\t%s\n' "$name" "$dir" >> "$bin/tests.txt"
done

# The text whose letters are counted, which comes with Go's sources.
cp "$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt" "$bin/"

mkdir -p .gpu
# One dictionary over all binaries: they share most of their code.
tar -C "$bin" -c . | xz -T1 --lzma2=preset=3,dict=256MiB > .gpu/bin.tar.xz
cat "$bin/tests.txt"
ls -l .gpu/bin.tar.xz
