"""Times other libraries on cases of ops; bench/peers.py runs it. A case has its op, case, dtype, the
shapes of its inputs and what else the op is told, and in "peers" the other libraries' calls, as the op's Spec in
internal/test/opspec has them: Python that defines peers(c, d), of a case and its torch type, which yields by, make and f for every
way to do the case. f(*make()) is the work. It sees what this file defines and imports.
The method is that of bench/timing.py.
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


REPEATED = 64  # a text: long enough for a call from Python, more than the level-2 cache keeps


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


def peers_of(c):
    scope = dict(globals())
    exec(c["peers"], scope)
    return scope["peers"](c, TYPES[c["dtype"]])


def run(cases, path, seconds):
    cub.start()
    log, until = Log(path), time.monotonic() + seconds
    for number, c in enumerate(cases, 1):
        if time.monotonic() > until:
            print(f"out of time after {number - 1} of {len(cases)} cases")
            return 1
        for by, make, f in peers_of(c):
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
