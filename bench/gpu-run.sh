#!/usr/bin/env bash
# Makes the evidence on a GPU machine. Needs no Go: it runs the test programs that
# bench/gpu-build.sh packed for the same PARTS, sanitizers over those of the kernels, and times the ops
# beside other libraries. What has run with the same kernels according to
# bench/results is left out, and so is what passed in an earlier call with the same
# $OUT: a call ends within $LIMIT seconds, and status 3 asks for another one. Logs
# and results go to $OUT (bench/out if unset); there
#
#   stheno maintain merge bench/out/*/<gpu>.json && make readme
#
# takes them over.
#
# Goes on after a failure and ends with status 1 if there was one.
#
#   PARTS        which parts to run: "tests kernels ops" if unset; tests writes
#                docs/functions.md, the errors of functions, too; ops, graphs and steps times cases of
#                ops, whole graphs and training steps, here and in other libraries, and random cases
#                drawn at random; products measures the errors of products of float32, here and of
#                cuBLAS; gallery runs the notebooks, whose records, NAME.json, belong into
#                examples/NAME/recorded.json: make gallery then makes the pages
#   ALL          1: also what bench/results has evidence of
#   LIMIT        seconds of a call, 540 if unset. Other libraries have three fifths of what is
#                left of it for graphs, and all but 90 s for steps
#   SUITES       suites.tsv of an earlier call, where $OUT does not outlive one
#   JOBS         suites of kernels that run at one time, 6 if unset
#   LIST         a file of the suites of kernels to run, in its order: lines of stheno maintain suites
#   LEAST        seconds that a call must have left to start a suite of kernels, 150 if unset
#   CLAIMS       a folder in which calls at the same time, on several GPUs (CUDA_VISIBLE_DEVICES), share a list of suites
#   BIN          a folder with .gpu/bin.tar.xz unpacked, one for each call at a time: logs are written there
#   TEST_RUN     -test.run of the tests, all if unset
#   BENCH_RUN    cases to time, a regular expression over op/case/dtype
#   SHAPES, SEED how many cases random draws, 500 if unset, and of which seed, else of a new one
set -uo pipefail
cd "$(dirname "$0")/.."

OUT=${OUT:-bench/out}
PARTS=${PARTS:-tests kernels ops}
LIMIT=${LIMIT:-540}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
root=$PWD
export STHENO_REQUIRE_GPU=1
suites=$OUT/suites.tsv # name, result, seconds, note, kernels: read by stheno
failed=0
unfinished=0

if [[ ! -f .gpu/bin.tar.xz ]]; then
    echo "no .gpu/bin.tar.xz: run bench/gpu-build.sh where Go is, and bring it here" >&2
    exit 2
fi
bin=${BIN:-$(mktemp -d)}
if [[ -z ${BIN:-} ]]; then
    trap 'rm -rf "$bin"' EXIT
    python3 - .gpu/bin.tar.xz "$bin" <<'PYTHON' || exit 1
import sys, tarfile
with tarfile.open(sys.argv[1]) as t:
    t.extractall(sys.argv[2], filter="data")
PYTHON
fi
# Outcomes of another build still count if the kernels are the same: stheno maintain suites decides.
build=$(sha256sum < .gpu/bin.tar.xz)
[[ -n ${SUITES:-} && $(realpath "$SUITES") != "$suites" ]] && cp "$SUITES" "$suites"
touch "$suites"
if [[ $(cat "$OUT/build" 2> /dev/null) != "$build" && -z ${SUITES:-} ]]; then
    awk -F'\t' '$5 != ""' "$suites" > "$bin/kept" && mv "$bin/kept" "$suites"
fi
echo "$build" > "$OUT/build"
text=$bin/Isaac.Newton-Opticks.txt
"$bin/stheno" doctor

now() { date +%s.%N; }

# left: the seconds that this call still has.
left() { echo $((LIMIT > SECONDS ? LIMIT - SECONDS : 0)); }

# enough SECONDS: whether this call still has them; if not, another one is wanted.
enough() { (($(left) >= $1)) || { unfinished=1 && false; }; }

# passed NAME: whether a suite passed in an earlier call.
passed() { grep -q "^$1	PASS	" "$suites"; }

# record NAME STATUS START NOTE [LOG [KERNELS]]: a line of $suites. A suite whose time
# ended before it failed at anything is CUT.
record() {
    local result=PASS note=$4
    if [[ $2 != 0 ]]; then
        result=FAIL
        failed=1
        if [[ -n ${5:-} ]] && ! grep -q -e '--- FAIL' "$5" && { [[ $2 == 124 || $2 == 137 ]] || grep -q 'panic: test timed out' "$5"; } &&
            ! grep -E '(ERROR|RACECHECK) SUMMARY' "$5" | grep -q -v -E 'SUMMARY: 0 '; then
            result=CUT
            note="out of time after $(grep -c '^=== RUN' "$5") tests began; $note"
        fi
    fi
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$result" "$(awk "BEGIN { printf \"%.1f\", $(now) - $3 }")" "$note" "${6:-}" >> "$suites"
}

# counts LOG: how the tests of a log came out, subtests included.
counts() {
    printf '%d passed, %d skipped, %d failed' "$(grep -c -- '--- PASS' "$1")" "$(grep -c -- '--- SKIP' "$1")" "$(grep -c -- '--- FAIL' "$1")"
}

tests() {
    local name dir start status page log=$bin/log
    while IFS=$'\t' read -r name dir; do
        passed "${name%.test}" && continue
        enough 120 || return
        page=
        [[ $name == cudaops-bench.test ]] && page=$OUT/functions.md
        start=$(now)
        (cd "$dir" && STHENO_RECORD=$page timeout -k 5 $(($(left) - 5)) "$bin/$name" -test.v -test.timeout $(($(left) - 10))s ${TEST_RUN:+-test.run "$TEST_RUN"}) > "$log" 2>&1 < /dev/null
        status=$?
        { echo "===== ${name%.test} in $dir: status $status"; cat "$log"; } >> "$OUT/tests.log"
        record "${name%.test}" $status "$start" "$(counts "$log")" "$log"
        [[ $status == 0 ]] || { echo "----- ${name%.test}"; grep -B 8 -A 2 -e '--- FAIL' -e '^panic' -e 'fatal error' "$log" | tail -n 40; }
    done < "$bin/tests.txt"
}

# control TOOL TEST FINDING NAME: the tool must find what a test of cudaops/bench does
# wrong on purpose, or its silence elsewhere proves nothing.
control() {
    passed "$4" && return
    local start log=$bin/control-$1-$2.log status=1
    start=$(now)
    (cd cudaops/bench && STHENO_PLANT_FAULT=1 timeout -k 5 60 compute-sanitizer --tool "$1" --target-processes all --error-exitcode 9 --print-limit 3 \
        "$bin/cudaops-bench.test" -test.v -test.run "^$2\$") > "$log" 2>&1 < /dev/null
    grep -q "$3" "$log" && status=0
    record "$4" $status "$start" "$(grep -h -E '(ERROR|RACECHECK) SUMMARY: [0-9]* (error|hazard)' "$log" | sed 's/^=* *//' | head -n 1)"
}

# suite NAME TOOL PROGRAM RUN PART KERNELS runs a line of stheno maintain suites. It passes if
# the tests pass and the tool, if there is one, reports no error itself.
suite() {
    local log=$bin/suite-${1//[^A-Za-z0-9]/-}.log dir start status note most= limit=$(($(left) < 330 ? $(left) : 330))
    dir=$(awk -F'\t' -v n="$3.test" '$1 == n { print $2 }' "$bin/tests.txt")
    local chosen=$4
    # An op's tests know $STHENO_PART; of a package's, every n-th of the list is a part.
    [[ -z $chosen ]] && chosen=$(cd "${dir:-.}" && "$bin/$3.test" -test.list . | grep '^Test' | awk -v part="$5" '{ split(part, p, "/") } NR % p[2] == p[1] % p[2]' | paste -sd'|' | sed 's/.*/^(&)$/')
    local program=("$bin/$3.test" -test.v -test.timeout $((limit - 10))s -test.run "$chosen")
    if [[ $2 != test ]]; then
        local options=(--tool "$2")
        # racecheck follows every access to shared memory, which takes its time.
        [[ $2 == racecheck ]] && most=10000
        # Each block of a grid has barriers of its own: with more than it counts, synccheck ends kernels.
        [[ $2 == synccheck ]] && options+=(--num-cuda-barriers 65536)
        # Tests provoke errors of calls, such as too little memory, and check them.
        [[ $2 == memcheck ]] && options+=(--report-api-errors no)
        program=(compute-sanitizer "${options[@]}" --target-processes all --error-exitcode 9 --print-limit 20 "${program[@]}" -test.short)
        # With one connection the branches of a graph run one after the other: initcheck misses writes of kernels that run at a time (bench/NOTES.md).
        [[ $2 == initcheck ]] && program=(env CUDA_DEVICE_MAX_CONNECTIONS=1 "${program[@]}")
    fi
    start=$(now)
    # initcheck misses writes of kernels of a graph that run at a time, at random (bench/NOTES.md): what it reports three times over is an error.
    local tries=1
    [[ $2 == initcheck ]] && tries=3
    while
        (cd "${dir:-.}" && STHENO_PART=$5 STHENO_MAX_ELEMENTS=$most timeout -k 5 $((($(left) < limit ? $(left) : limit) - 5)) "${program[@]}") > "$log" 2>&1 < /dev/null
        status=$?
        ((status == 9 && --tries > 0))
    do :; done
    note=$(grep -h -E '(ERROR|RACECHECK) SUMMARY' "$log" | sed 's/^=* *//' | tail -n 1)
    if [[ $status == 124 || $status == 137 ]]; then
        note="timed out; $note"
    elif grep -q 'before first instrumented API call' "$log" && grep -q '^PASS' "$log"; then
        note="no test of this part launches a kernel"
        status=0
    elif [[ $2 != test && -z $note ]]; then
        note="no summary: $(tail -n 1 "$log" | tr -d '\t')"
        status=1
    elif ! grep -q -e '--- PASS' "$log" || grep -q -e '--- FAIL' "$log"; then
        status=1
    fi
    record "$1" $status "$start" "${note:+$note; }$(counts "$log")" "$log" "$6"
}

# kernels: the tests of the kernels that lack evidence, plain and under sanitizers.
kernels() {
    local name tool program run part of
    if [[ -n ${LIST:-} ]]; then
        cp "$LIST" "$bin/suites"
    else
        "$bin/stheno" maintain suites ${ALL:+--all} --passed "$suites" > "$bin/suites"
    fi || { failed=1 && return; }
    # Nothing is timed here, so they may share the GPU, and the cores, of which each
    # takes one or two.
    while IFS=$'\t' read -r name tool program run part of; do
        [[ $run == - ]] && run=
        while (($(jobs -rp | wc -l) >= ${JOBS:-6})); do wait -n; done
        enough "${LEAST:-150}" || break
        [[ -z ${CLAIMS:-} ]] || mkdir "$CLAIMS/${name//[^A-Za-z0-9]/-}" 2> /dev/null || continue
        suite "$name" "$tool" "$program" "$run" "$part" "$of" &
    done < "$bin/suites"
    if [[ -s $bin/suites ]] && enough 60; then
        control memcheck TestPlantedFault 'Invalid __global__ write' "memcheck finds a planted fault" &
        control racecheck TestRippleRacy 'Race reported between .*ripple_racy_f32' "racecheck finds a missing barrier" &
        control racecheck TestIncrementRacyShared 'Race reported between .*increment_racy_shared_i32' "racecheck finds lost updates" &
    fi
    wait
    for log in "$bin"/suite-*.log "$bin"/control-*.log; do
        [[ -f $log ]] && echo "===== $(basename "$log" .log)" && cat "$log"
    done >> "$OUT/kernels.log"
}

# measure SET SECONDS [FLAG...]: the cases of a set, in other libraries for so many seconds and here, and the file of results. Of
# ops those that lack a time with the kernels as they are.
measure() {
    local set=$1 seconds=$2 folder=$OUT/$1 all= peers=()
    local chosen=("$set" --run "${BENCH_RUN:-}" --text "$text")
    [[ -n ${ALL:-} || $set != ops ]] && all=--all
    mkdir -p "$folder"
    "$bin/stheno" maintain cases "${chosen[@]}" $([[ -n $all ]] || echo --missing) --json > "$bin/$set.json" || { failed=1 && return; }
    if grep -q op "$bin/$set.json"; then
        PYTHONUNBUFFERED=1 timeout $((seconds + 15)) python3 bench/peers.py "$bin/$set.json" "$bin/$set-peers.json" "$seconds" 2>&1 | tee -a "$OUT/$set.log"
        [[ ${PIPESTATUS[0]} == 0 ]] || failed=1
        [[ -s $bin/$set-peers.json ]] && peers=(--peers "$bin/$set-peers.json")
    fi
    timeout $(($(left) - 5)) "$bin/stheno" maintain record "${chosen[@]}" $all "${peers[@]}" "${@:3}" --json "$folder" 2>&1 | tee -a "$OUT/$set.log"
    [[ ${PIPESTATUS[0]} == 0 ]] || failed=1
}

ops() { enough 290 && measure ops 100 --suites "$suites"; }

graphs() { enough 120 && measure graphs $(($(left) * 3 / 5)); }

steps() { enough 220 && measure steps $(($(left) - 90)); } # the steps here take 20

# products: errors of products, and times with special operands.
products() {
    local folder=$OUT/products
    enough 120 || return
    mkdir -p "$folder" "$bin/products"
    {
        "$bin/stheno" maintain cases products --run "${BENCH_RUN:-}" --json --operands "$bin/products" > "$bin/products.json" &&
            timeout 60 python3 bench/accuracy_peers.py "$bin/products.json" "$bin/products" &&
            timeout $(($(left) - 5)) "$bin/stheno" maintain record products --all --run "${BENCH_RUN:-}" --peers "$bin/products" --json "$folder"
    } 2>&1 | tee -a "$OUT/products.log"
    [[ ${PIPESTATUS[0]} == 0 ]] || failed=1
}

# random: drawn cases, in other libraries and here.
random() {
    local folder=$OUT/drawn
    passed "drawn cases" && return
    enough 400 || return
    mkdir -p "$folder"
    [[ -s $OUT/drawn.seed ]] || echo "${SEED:-$(date +%s)}" > "$OUT/drawn.seed"
    local drawn=(bench gpu --random "${SHAPES:-500}" --seed "$(cat "$OUT/drawn.seed")" --run "${BENCH_RUN:-}") start status
    start=$(now)
    "$bin/stheno" "${drawn[@]}" --list > "$bin/drawn.json" || { failed=1 && return; }
    PYTHONUNBUFFERED=1 timeout $(($(left) / 2)) python3 bench/peers.py "$bin/drawn.json" "$bin/drawn-peers.json" $(($(left) / 2 - 20)) > "$OUT/drawn-peers.log" 2>&1
    timeout $(($(left) - 10)) "$bin/stheno" "${drawn[@]}" --peers "$bin/drawn-peers.json" --json "$folder" 2>&1 | tee "$OUT/drawn.log"
    status=${PIPESTATUS[0]}
    record "drawn cases" "$status" "$start" "$(tail -n 1 "$OUT/drawn.log" | tr -d '\t')"
}

# gallery: every notebook, its page, its figures and its record.
gallery() {
    local notebook name start status extra
    mkdir -p "$OUT/gallery"
    for notebook in "$bin"/notebook-*; do
        name=${notebook##*/notebook-}
        passed "notebook $name" && continue
        enough 130 || return
        start=$(now)
        extra=()
        if [[ $name == 02-* ]] && command -v ncu > /dev/null; then
            timeout 60 ncu --csv -k 'regex:^matmul_' --metrics "$(grep -o '"[a-z0-9_]*\.sum"' examples/$name/counts.go | tr -d '"' | paste -sd,)" "$notebook" -profile > "$OUT/gallery/counts.csv" 2> /dev/null &&
                extra=(-counts "$OUT/gallery/counts.csv")
        fi
        if [[ $name == 02-* ]]; then
            timeout 60 python3 examples/$name/cublas.py > "$OUT/gallery/cublas.csv" 2> /dev/null && extra+=(-cublas "$OUT/gallery/cublas.csv")
        fi
        [[ $name == 04-* || $name == 08-* ]] && extra=(-text "$text")
        timeout 120 "$notebook" -device gpu "${extra[@]}" -html "$OUT/gallery/$name.html" -record "$OUT/gallery/$name.json" -out "$OUT/gallery/$name" \
            > "$OUT/gallery/$name.txt" 2>&1 < /dev/null
        status=$?
        record "notebook $name" $status "$start" "$(tail -n 1 "$OUT/gallery/$name.txt")"
    done
}

for part in $PARTS; do
    case $part in
    tests | kernels | ops | graphs | steps | products | random | gallery) ;;
    *) echo "PARTS: no part $part, want tests, kernels, ops, graphs, steps, products, random, gallery" && exit 2 ;;
    esac
    echo "== $part (at $SECONDS s)"
    case $part in
    ops) ops > "$bin/ops.out" 2>&1 ;;
    *) $part ;;
    esac
done
# Of several lines with one name the last counts.
tac "$suites" | awk -F'\t' '!seen[$1]++' | tac > "$bin/last" && mv "$bin/last" "$suites"
cut -f 2 "$suites" | grep -q FAIL && failed=1
cut -f 2 "$suites" | grep -q CUT && unfinished=1

echo
cut -f 1-4 "$suites" | column -t -s $'\t' 2> /dev/null || cat "$suites"
[[ -f $bin/ops.out ]] && echo && cat "$bin/ops.out"
status=$((failed ? 1 : unfinished ? 3 : 0))
((unfinished)) && echo "there is more to do: call it again with the same \$OUT"
echo "$SECONDS s, status $status"
cd "$root" && exit $status
