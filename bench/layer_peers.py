"""Times PyTorch on what TestWindowTimes, TestMovesTimes and TestNormTimes of cudaops/bench time on
plans. It reads their lines, and takes the shapes from the names there.

	STHENO_TIMES='pool|im2col|scatter' go test ./cudaops/bench -run Times -v | tee times.log
	python3 bench/layer_peers.py < times.log

Eager, operands of about a gigabyte on the device, timed by the method of bench/timing.py.
"""

import re
import sys

import torch
import torch.nn.functional as F

from timing import median_us, rand

ELEMENTS = 1 << 28
aten = torch.ops.aten


def made(*shape):
    return rand(torch.float32, *shape)


# Each gives, for the numbers of a name, a call and the float32 that it moves.


def pool(kind, derivative, side, _, size, stride, pad):
    x = made(ELEMENTS // (64 * side * side), 64, side, side)
    window = [size, size], [stride, stride], [pad, pad]
    y, which = aten.max_pool2d_with_indices(x, *window)
    dy, both = torch.rand_like(y), x.numel() + y.numel()
    if kind == "max" and derivative:
        return lambda: aten.max_pool2d_with_indices_backward(dy, x, *window, [1, 1], False, which), both + x.numel()
    if derivative:
        return lambda: aten.avg_pool2d_backward(dy, x, *window, False, True, None), both
    return lambda: (aten.max_pool2d_with_indices if kind == "max" else aten.avg_pool2d)(x, *window), both


def columns(kind, channels, side, _, size, stride, pad):
    windows = (side + 2 * pad - size) // stride + 1
    x = made(ELEMENTS // (windows * windows * channels * size * size), channels, side, side)
    y = F.unfold(x, size, padding=pad, stride=stride)
    call = lambda: F.unfold(x, size, padding=pad, stride=stride)
    return call if kind == "im2col" else lambda: F.fold(y, (side, side), size, padding=pad, stride=stride), x.numel() + y.numel()


def index(kind, count, words, size, equal):
    which = torch.full((count,), 7, device="cuda") if equal else torch.randint(words, (count,), device="cuda")
    if kind == "gather":
        table = made(words, size)
        return lambda: F.embedding(which, table), 2 * count * size
    dy = made(count, size)
    return lambda: aten.embedding_dense_backward(dy, which, words, -1, False), (count + words) * size


def transpose(batch, rows, columns):
    x = made(batch, columns, rows)
    return lambda: x.transpose(1, 2).contiguous(), 2 * x.numel()


def concat(a, b, rows, columns, axis):
    parts = [made(rows, n) for n in (a, b)]
    return lambda: torch.cat(parts, axis), 2 * rows * columns


def slice_of(wide, first, rows, columns):
    x = made(rows, wide)
    return lambda: x[:, first : first + columns].contiguous(), 2 * rows * columns


def norm(*shape):
    x, weight, bias = made(*shape), made(shape[1]), made(shape[1])
    return lambda: F.batch_norm(x, None, None, weight, bias, True), 3 * x.numel()


def drawn(kind, *shape):
    return lambda: (torch.rand if kind == "uniform" else torch.randn)(shape, device="cuda"), made(*shape).numel()


NAMES = [
    (r"(max|average)-pool( derivative|) of (\d+) x (\d+), (\d+) by (\d+), pad (\d+)", pool),
    (r"(im2col|col2im) of (\d+) channels, (\d+) x (\d+), (\d+) by (\d+), pad (\d+)", columns),
    (r"(gather|scatter) (\d+) of (\d+) x (\d+)(, all equal|)", index),
    (r"transpose f32 \[(\d+) (\d+) (\d+)\]", transpose),
    (r"concat \[(\d+) (\d+)\] of \[(\d+) (\d+)\] along (\d+)", concat),
    (r"slice of (\d+) columns from (\d+) on f32 \[(\d+) (\d+)\]", slice_of),
    (r"(uniform|gaussian) of \[(\d+) (\d+) (\d+) (\d+)\]", drawn),
    (r"batch norm of \[(\d+) (\d+) (\d+) (\d+)\]", norm),
]

for line in sys.stdin:
    for name, make in NAMES:
        if found := re.search(r"\b" + name, line):
            call, elements = make(*(int(s) if s.isdigit() else s for s in found.groups()))
            us = median_us(lambda _: call())
            print(f"{found[0]:52} {us:9.2f} us {4 * elements / us / 1e3:6.0f} GB/s", flush=True)
            del call
            torch.cuda.empty_cache()
