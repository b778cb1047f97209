"""Times other libraries on cases of ops; bench/peers.py runs it. A case has its op, case, dtype, the
shapes of its inputs and what else the op is told. The method is that of bench/timing.py.
"""

import pathlib
import time

import torch
import torch.nn.functional as F

import cub
from log import Log, key_of
from timing import NAMES, TORCH, cupy, in_turns, median_us, rand

TYPES = {name: dtype for dtype, name in NAMES.items()}


def empty(dtype, shape):
    return torch.empty(tuple(shape), dtype=dtype, device="cuda")


def drawn(dtype, shape):
    return rand(dtype, tuple(shape))


def cupy_call(f):
    """f on CuPy arrays that are the tensors' memory."""
    return lambda *tensors: f(*(cupy.from_dlpack(t) for t in tensors))


# Each op yields by, make and f for every way to do a case: f(*make()) is the work.


def add(c, d):
    s = c["shapes"][0]
    yield TORCH + " add", lambda: (drawn(d, s), drawn(d, s), empty(d, s)), lambda a, b, o: torch.add(a, b, out=o)


def broadcast(c, d):
    s, axis = c["shapes"][0], c.get("axis", 0)
    out = s[:axis] + [c["copies"]] + s[axis:]
    yield TORCH + " copy_", lambda: (drawn(d, s), empty(d, out)), lambda x, o: o.copy_(x.unsqueeze(axis))


def dot(c, d):
    s = c["shapes"][0]
    make = lambda: (drawn(d, s), drawn(d, s))
    if len(s) == 1:
        yield TORCH + " dot", make, torch.dot
    else:
        yield TORCH + " linalg.vecdot", make, torch.linalg.vecdot


def scale(c, d):
    x, s = c["shapes"]
    yield TORCH + " mul", lambda: (drawn(d, x), drawn(d, s), empty(d, x)), lambda x, s, o: torch.mul(x, s.unsqueeze(-1), out=o)


def summed(c, d):
    s, axes, name = c["shapes"][0], tuple(c["axes"]), c["op"].lower()
    make = lambda: (drawn(d, s), empty(d, [n for a, n in enumerate(s) if a not in axes]))
    yield f"{TORCH} {name}", make, lambda x, o: getattr(torch, name)(x, dim=axes, out=o)
    if cupy:
        yield f"CuPy {cupy.__version__} {name}", make, cupy_call(lambda x, o: getattr(x, name)(axis=axes, out=o))


# Expressions of Map: in PyTorch, and in C for CuPy, where T is the type.
MAPS = {
    "tanh(a*b) + c": (lambda a, b, c: torch.tanh(a * b) + c, "tanh(a*b) + c"),
    "a*b + c": (lambda a, b, c: a * b + c, "a*b + c"),
    "select(a < b, a, 0.5*b)": (lambda a, b: torch.where(a < b, a, 0.5 * b), "a < b ? a : (T)0.5*b"),
    "max(a, 0.1*a) * sigmoid(b)": (lambda a, b: torch.maximum(a, 0.1 * a) * torch.sigmoid(b), "max(a, (T)0.1*a) / ((T)1 + exp(-b))"),
    "a / sqrt(1 + square(b)) - (a >= b)": (lambda a, b: a / torch.sqrt(1 + b * b) - (a >= b).to(a.dtype), "a / sqrt((T)1 + b*b) - (T)(a >= b)"),
    "0.5 * a * (1 + erf(a * 0.70710678))": (lambda a: 0.5 * a * (1 + torch.erf(a * 0.70710678)), "(T)0.5 * a * ((T)1 + erf(a * (T)0.70710678))"),
}


def mapped(c, d):
    in_torch, in_c = MAPS[c["expression"]]
    operands = lambda: tuple(drawn(d, s) for s in c["shapes"])
    yield TORCH + " element-wise calls", operands, in_torch
    if cupy:
        names = "abc"[: len(c["shapes"])]
        kernel = cupy.ElementwiseKernel(", ".join("T " + n for n in names), "T y", "y = " + in_c, "mapped")
        yield f"CuPy {cupy.__version__} ElementwiseKernel", lambda: operands() + (empty(d, c["shapes"][0]),), cupy_call(kernel)


# Expressions of Reduce: a call of PyTorch's, if there is one, and for CuPy the function of an
# element, how two results join, and the identity.
REDUCTIONS = {
    "a + b": (torch.sum, "x", "a + b", "0"),
    "a + b*b": (lambda x: torch.dot(x.view(-1), x.view(-1)), "x*x", "a + b", "0"),
    "(a - b / 2) + 1": (None, "(T)1 - x/2", "a + b", "0"),
    "sqrt(1 + b*b) + a": (None, "sqrt((T)1 + x*x)", "a + b", "0"),
    "max(a, b)": (torch.max, "x", "max(a, b)", "-1e30"),
    "min(abs(b), a)": (None, "abs(x)", "min(a, b)", "100"),
}


def reduced(c, d):
    s = c["shapes"][0]
    in_torch, each, join, identity = REDUCTIONS[c["expression"]]
    if in_torch:
        yield f"{TORCH} {in_torch.__name__.replace('<lambda>', 'dot')}", lambda: (drawn(d, s),), in_torch
    if cupy:
        kernel = cupy.ReductionKernel("T x", "T y", each, join, "y = a", identity, "reduced")
        yield f"CuPy {cupy.__version__} ReductionKernel", lambda: (drawn(d, s), empty(d, [])), cupy_call(lambda x, o: kernel(x, o))


def multiplied(c, d):
    a, b = c["shapes"]
    turn = lambda t, turned: t.mT if turned else t
    f = lambda a, b, *o: torch.matmul(turn(a, c.get("trans_a")), turn(b, c.get("trans_b")), **({"out": o[0]} if o else {}))
    m, k = a[-2:] if not c.get("trans_a") else a[:-3:-1]
    out = a[:-2] + [m] if len(b) == 1 else a[:-2] + [m, b[-2] if c.get("trans_b") else b[-1]]
    name = ("S" if d == torch.float32 else "D") + ("GEMV" if len(b) == 1 else "GEMM")
    yield f"cuBLAS {name} ({TORCH} matmul)", lambda: (drawn(d, a), drawn(d, b), empty(d, out)), f


def windowed(c, d):
    s, r, same = c["shapes"][0], c.get("radius", 0), c.get("same", False)
    n, k = s[-1], 2 * r + 1
    make = lambda: (drawn(d, s).view(-1, 1, n),)
    if r <= 512:
        yield TORCH + " avg_pool1d", make, lambda x: F.avg_pool1d(x, k, 1, r if same else 0)
    if r <= 7:
        w = torch.ones(1, 1, k, dtype=d, device="cuda")
        yield TORCH + " conv1d", make, lambda x: F.conv1d(x, w, padding=r if same else 0)
    if r >= 16:

        def running(x):  # of any radius in one pass more, with the type's rounding
            sums = F.pad(x, (r + 1, r) if same else (1, 0)).cumsum(-1)
            return sums[..., k:] - sums[..., :-k]

        yield TORCH + " cumsum", make, running


REPEATED = 64  # a text: long enough for a call from Python, more than the level-2 cache keeps


def counted(c, d):
    n, bins, lo, hi, data = c["shapes"][0][0], c["bins"], c.get("lo", 0), c["hi"], c["data"]

    def numbers():
        if data == "equal":
            at = torch.full((n,), 0.3, device="cuda", dtype=torch.float64 if d == torch.float64 else torch.float32)
        else:
            at = torch.rand(n, device="cuda", dtype=torch.float64 if d == torch.float64 else torch.float32)
            if data == "skewed":
                at = at.pow_(8)
        if d == torch.uint8:
            return at.mul_(256).to(d)
        return at.mul_(2).sub_(1)

    if data == "text":
        letters = pathlib.Path(c["text"]).read_bytes()
        one = torch.frombuffer(bytearray((letters * (n // len(letters) + 1))[:n]), dtype=torch.uint8)
        numbers = lambda: one.repeat(REPEATED, 1).cuda()
    make = lambda: (numbers(), empty(torch.int32, [bins]))
    if d != torch.uint8:
        yield TORCH + " histc", make, lambda x, o: torch.histc(x, bins, lo, hi)
    if d != torch.float64:
        yield "CUB HistogramEven", make, lambda x, o: cub.histogram(c["dtype"], x, o, int(lo), int(hi))


def iterated(c, d):
    w, n, steps = c["shapes"][0], c["shapes"][2][0], c["steps"]

    def f(w1, w2, x, p, y):
        y.copy_(x)
        for _ in range(steps):
            torch.mv(w1, y, out=p)
            torch.mv(w2, p, out=y)

    make = lambda: (drawn(d, w), drawn(d, w), drawn(d, [n]), empty(d, [n]), empty(d, [n]))
    yield f"{TORCH} mv, {2 * steps} calls", make, f
    yield f"{TORCH} mv, {2 * steps} calls in a CUDA graph", make, graphed(f)


def graphed(f):
    """f captured once for each set of operands, and replayed."""
    graphs = {}

    def call(*operands):
        key = operands[0].data_ptr()
        if key not in graphs:
            f(*operands)
            torch.cuda.synchronize()
            graphs[key] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graphs[key]):
                f(*operands)
        graphs[key].replay()

    return call


OPS = {
    "Add": add, "Broadcast": broadcast, "Dot": dot, "Scale": scale, "Sum": summed, "Mean": summed, "Map": mapped, "Reduce": reduced,
    "MatMul": multiplied, "WindowSum": windowed, "Histogram": counted, "Iterate": iterated,
}  # fmt: skip


def run(cases, path, seconds):
    cub.start()
    log, until = Log(path), time.monotonic() + seconds
    for number, c in enumerate(cases, 1):
        if time.monotonic() > until:
            print(f"out of time after {number - 1} of {len(cases)} cases")
            return 1
        if c["op"] not in OPS:
            print(f"{'/'.join(key_of(c))}: no peer for {c['op']}")
            continue
        for by, make, f in OPS[c["op"]](c, TYPES[c["dtype"]]):
            cub.scratch.clear()
            torch.cuda.empty_cache()
            try:
                call = in_turns(make, f)
                for i in range(64 if "graph" in by else 1):  # what is compiled or captured at first
                    call(i)
                us = median_us(call, 30 if len(cases) < 100 else 10) / (REPEATED if c.get("data") == "text" else 1)
            except Exception as e:
                log.failed(key_of(c), by, e)
                continue
            print(f"{number}/{len(cases)}", end=" ")
            log.add(key_of(c), by, us)
