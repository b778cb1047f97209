#!/usr/bin/env python3
"""Times other libraries on the cases of `stheno bench gpu`, on this machine's GPU.

    python3 bench/peers.py peers.json [text [pattern]]
    python3 bench/peers.py -graphs peers.json [pattern [seconds]]    whole graphs: bench/graph_peers.py
    python3 bench/peers.py -steps peers.json [pattern [seconds]]    training steps: bench/step_peers.py
    python3 bench/peers.py -random shapes.json peers.json [pattern]    drawn cases: bench/random_peers.py

Writes an array of {op, case, dtype, by, median_us}; op, case and dtype are
those of the row that it is set beside. Wants PyTorch with CUDA; CuPy is used
where it is installed, CUB (bench/cub.cu) where nvcc is. A peer that cannot do a
case is told and left out. The histogram of a text is timed if one is given. With a
pattern, a regular expression, cases are timed whose op/case/dtype it is found in. With seconds,
600 if there are none, whole graphs and training steps end by then, with what they have.

Method, the same as stheno bench gpu's: random operands in device memory, results
too; operands that together are smaller than four times the level-2 cache are
held several times over and take turns; warm-up of 50 ms; times between CUDA
events at least a millisecond apart, the work queued back to back; the median.
"""

import ctypes
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

try:
    import cupy
except ImportError:
    cupy = None

N = 1 << 28
SIDE = 1 << 14
TORCH = "PyTorch " + torch.__version__.split("+")[0]

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
torch.manual_seed(torch.seed() % (1 << 31))


def rand(dtype, *shape):
    """Uniform in [-1, 1)."""
    return torch.rand(*shape, dtype=dtype, device="cuda").mul_(2).sub_(1)


def span(run, n, first):
    """Milliseconds of n runs, of which the first is number first."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for i in range(n):
        run(first + i)
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop)


def median_us(run, runs=30):
    calls, n = 0, 1
    while True:  # warm up for 50 ms and learn how long a run takes
        ms = span(run, n, calls)
        calls += n
        if ms >= 50 or n >= 4096:
            break
        n *= 2
    each = max(ms / n, 1e-6)
    n = int(min(max(1 / each, 1), 4096))
    runs = min(runs, max(int(3000 / (each * n)), 5))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(runs + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(n):
            run(calls)
            calls += 1
        event.record()
    torch.cuda.synchronize()
    return 1000 * statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / n


def in_turns(make, f):
    """f on copies of the operands that make gives, in turns."""
    first = make()
    size = sum(t.numel() * t.element_size() for t in first)
    copies = min(max(-(-4 * torch.cuda.get_device_properties(0).L2_cache_size // size), 1), 64)
    sets = [first] + [tuple(t.clone() for t in first) for _ in range(copies - 1)]
    return lambda i: f(*sets[i % copies])


NAMES = {torch.float32: "f32", torch.float64: "f64", torch.uint8: "u8"}


def f32(dtype):
    return dtype == torch.float32


def peers(text):
    """Yields op, case, dtype, who, make and f: f(*make()) is the work, and how often it is done if more than once."""
    for d in (torch.float32, torch.float64):
        yield "Sum", "all 2^28", d, TORCH + " sum", lambda: (rand(d, N), torch.empty((), dtype=d, device="cuda")), lambda x, o: torch.sum(x, dim=0, out=o)
        if cupy:
            yield "Sum", "all 2^28", d, f"CuPy {cupy.__version__} sum (CUB)", lambda: (rand(d, N), torch.empty((), dtype=d, device="cuda")), cupy_sum
            if f32(d):
                yield "Sum", "all 2^30", d, f"CuPy {cupy.__version__} sum (CUB)", lambda: (rand(d, 4 * N), torch.empty((), dtype=d, device="cuda")), cupy_sum
        yield "Add", "2^28", d, TORCH + " add", lambda: (rand(d, N), rand(d, N), torch.empty(N, dtype=d, device="cuda")), lambda a, b, o: torch.add(a, b, out=o)
        yield "Dot", "2^28", d, TORCH + " dot", lambda: (rand(d, N), rand(d, N)), lambda a, b: torch.dot(a, b)
        name = "cuBLAS SGEMM" if f32(d) else "cuBLAS DGEMM"
        for n in (1024, 4096, 4097, 8192) if f32(d) else (4096,):
            yield "MatMul", str(n), d, f"{name} ({TORCH})", lambda n=n: (rand(d, n, n), rand(d, n, n), torch.empty(n, n, dtype=d, device="cuda")), lambda a, b, o: torch.mm(a, b, out=o)

    d = torch.float32
    matrix = lambda: (rand(d, SIDE, SIDE),)
    yield "Sum", f"rows {SIDE}x{SIDE}", d, TORCH + " sum", matrix, lambda x: x.sum(1)
    yield "Sum", f"columns {SIDE}x{SIDE}", d, TORCH + " sum", matrix, lambda x: x.sum(0)
    yield "Sum", f"both {SIDE}x{SIDE}", d, TORCH + " sum", matrix, lambda x: x.sum()
    yield "MatMul", f"matrix x vector {SIDE}", d, f"cuBLAS SGEMV ({TORCH})", lambda: matrix() + (rand(d, SIDE),), lambda a, x: torch.mv(a, x)
    yield "Dot", f"rows {SIDE}x{SIDE}", d, TORCH + " linalg.vecdot", lambda: matrix() + matrix(), lambda a, b: torch.linalg.vecdot(a, b)
    out = lambda: (torch.empty(SIDE, SIDE, dtype=d, device="cuda"),)
    yield "Scale", f"rows {SIDE}x{SIDE}", d, TORCH + " mul", lambda: matrix() + (rand(d, SIDE, 1),) + out(), lambda x, s, o: torch.mul(x, s, out=o)
    yield "Broadcast", "2^14 rows of 2^14", d, TORCH + " copy_", lambda: (rand(d, SIDE),) + out(), lambda x, o: o.copy_(x)

    w = torch.ones(1, 1, 5, dtype=d, device="cuda")
    for case, shape in (("2^28 r=2", (1, 1, N)), ("2^20 x 256 r=2", (1 << 20, 1, 256))):
        yield "WindowSum", case, d, TORCH + " conv1d", lambda shape=shape: (rand(d, *shape),), lambda x: F.conv1d(x, w, padding=2)
        yield "WindowSum", case, d, TORCH + " avg_pool1d", lambda shape=shape: (rand(d, *shape),), lambda x: F.avg_pool1d(x, 5, 1, 2)
    for r in (32, 512):
        yield "WindowSum", f"2^28 r={r}", d, TORCH + " avg_pool1d", lambda: (rand(d, 1, 1, N),), lambda x, r=r: F.avg_pool1d(x, 2 * r + 1, 1, r)

    for bins in (256, 16384):
        floats = lambda bins=bins: (rand(d, N), torch.empty(bins, dtype=torch.int32, device="cuda"))
        yield "Histogram", f"2^28 into {bins}", d, TORCH + " histc", floats, lambda x, o, bins=bins: torch.histc(x, bins, -1, 1)
        yield "Histogram", f"2^28 into {bins}", d, "CUB HistogramEven", floats, lambda x, o: cub_histogram("f32", x, o, -1, 1)
    def bytes_of(case, x):
        return "Histogram", case, torch.uint8, "CUB HistogramEven", lambda: (x(), torch.empty(256, dtype=torch.int32, device="cuda")), lambda x, o: cub_histogram("u8", x, o, 0, 256)

    yield bytes_of("2^30 bytes", lambda: torch.randint(256, (1 << 30,), dtype=torch.uint8, device="cuda"))
    yield bytes_of("2^30 equal bytes", lambda: torch.full((1 << 30,), ord("e"), dtype=torch.uint8, device="cuda"))
    if text:
        size, rows = 5_800_000, 64  # long enough for a call from Python, more than the level-2 cache keeps
        one = torch.frombuffer(bytearray((text * (size // len(text) + 1))[:size]), dtype=torch.uint8)
        yield *bytes_of("5.8 MB of text", lambda: one.repeat(rows, 1).cuda()), rows


class Cub:
    """bench/cub.cu as a library: compiled while other peers are timed."""

    def __init__(self):
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        self.path = pathlib.Path(tempfile.mkdtemp()) / "cub.so"
        source = pathlib.Path(__file__).with_name("cub.cu")
        self.compiler, self.loaded, self.memory = None, None, {}
        try:
            self.compiler = subprocess.Popen([nvcc, "-O3", "-std=c++17", "-arch=native", "--shared", "-Xcompiler", "-fPIC", "-o", self.path, source])
        except OSError as e:
            self.error = e

    def library(self):
        if not self.compiler:
            raise self.error
        if self.compiler.wait():
            raise RuntimeError("nvcc cannot compile bench/cub.cu")
        self.loaded = self.loaded or ctypes.CDLL(str(self.path))
        return self.loaded


def cub_histogram(name, x, counts, lo, hi):
    pointer = lambda t: ctypes.c_void_p(t.data_ptr())
    bins, rows, n = counts.numel(), x.shape[0] if x.dim() > 1 else 1, x.shape[-1]

    def call(memory, size):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = getattr(cub.library(), "histogram_" + name)(memory, ctypes.byref(size), pointer(x), pointer(counts), bins, lo, hi, rows, n, stream)
        if error:
            raise RuntimeError(f"CUDA error {error}")

    kept = cub.memory
    if (name, bins, n) not in kept:
        size = ctypes.c_size_t()
        call(None, size)
        kept[name, bins, n] = torch.empty(size.value, dtype=torch.uint8, device="cuda")
    memory = kept[name, bins, n]
    call(pointer(memory), ctypes.c_size_t(memory.numel()))


def cupy_sum(x, o):
    cupy.from_dlpack(x).sum(out=cupy.from_dlpack(o))


def main(path, text=None, pattern=""):
    print(torch.cuda.get_device_name(), TORCH)
    global cub
    cub = Cub()
    copy = in_turns(lambda: (rand(torch.float32, N), torch.empty(N, device="cuda")), lambda a, o: o.copy_(a))
    print(f"device copy by {TORCH} copy_: {8 * N / median_us(copy) / 1e3:.0f} GB/s")
    del copy
    rows = []
    for op, case, dtype, by, make, f, *times in peers(text):
        name = NAMES[dtype]
        if not re.search(pattern, f"{op}/{case}/{name}"):
            continue
        torch.cuda.empty_cache()
        try:
            us = median_us(in_turns(make, f)) / (times[0] if times else 1)
        except Exception as e:
            print(f"{op}/{case}/{name} {by}: {type(e).__name__}: {str(e).splitlines()[0]}")
            continue
        rows.append({"op": op, "case": case, "dtype": name, "by": by, "median_us": round(us, 3)})
        print(f"{op}/{case}/{name} {by}: {us:.1f} us")
        with open(path, "w") as out:  # each time, for a run that is cut off
            json.dump(rows, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    if sys.argv[1:2] in (["-graphs"], ["-steps"]) and len(sys.argv) in (3, 4, 5):
        import graph_peers
        import step_peers

        print(torch.cuda.get_device_name(), TORCH)
        peers = graph_peers if sys.argv[1] == "-graphs" else step_peers
        path, pattern, seconds = (sys.argv[2:] + ["", "600"][len(sys.argv) - 3:])[:3]
        sys.exit(peers.main(path, pattern, median_us, float(seconds)))
    if sys.argv[1:2] == ["-random"] and len(sys.argv) in (4, 5):
        import random_peers

        sys.exit(random_peers.main(*sys.argv[2:]))
    if len(sys.argv) not in (2, 3, 4) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1], pathlib.Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else None, *sys.argv[3:])
