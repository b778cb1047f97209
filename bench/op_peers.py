"""Times other libraries on the cases of `stheno bench gpu`; bench/peers.py runs it. The
histogram of a text is timed if one is given.
"""

import pathlib
import re

import torch
import torch.nn.functional as F

import cub
from log import Log
from timing import NAMES, TORCH, cupy, in_turns, median_us, rand

N = 1 << 28
SIDE = 1 << 14


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
        yield "Histogram", f"2^28 into {bins}", d, "CUB HistogramEven", floats, lambda x, o: cub.histogram("f32", x, o, -1, 1)
    def bytes_of(case, x):
        return "Histogram", case, torch.uint8, "CUB HistogramEven", lambda: (x(), torch.empty(256, dtype=torch.int32, device="cuda")), lambda x, o: cub.histogram("u8", x, o, 0, 256)

    yield bytes_of("2^30 bytes", lambda: torch.randint(256, (1 << 30,), dtype=torch.uint8, device="cuda"))
    yield bytes_of("2^30 equal bytes", lambda: torch.full((1 << 30,), ord("e"), dtype=torch.uint8, device="cuda"))
    if text:
        size, rows = 5_800_000, 64  # long enough for a call from Python, more than the level-2 cache keeps
        one = torch.frombuffer(bytearray((text * (size // len(text) + 1))[:size]), dtype=torch.uint8)
        yield *bytes_of("5.8 MB of text", lambda: one.repeat(rows, 1).cuda()), rows


def cupy_sum(x, o):
    cupy.from_dlpack(x).sum(out=cupy.from_dlpack(o))


def main(path, text=None, pattern=""):
    text = text and pathlib.Path(text).read_bytes()
    cub.start()
    copy = in_turns(lambda: (rand(torch.float32, N), torch.empty(N, device="cuda")), lambda a, o: o.copy_(a))
    print(f"device copy by {TORCH} copy_: {8 * N / median_us(copy) / 1e3:.0f} GB/s")
    del copy
    log = Log(path)
    for op, case, dtype, by, make, f, *times in peers(text):
        key = op, case, NAMES[dtype]
        if not re.search(pattern, "/".join(key)):
            continue
        torch.cuda.empty_cache()
        try:
            us = median_us(in_turns(make, f)) / (times[0] if times else 1)
        except Exception as e:
            log.failed(key, by, e)
            continue
        log.add(key, by, us)
