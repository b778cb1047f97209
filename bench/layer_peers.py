"""Times PyTorch on what TestWindowTimes, TestMovesTimes and TestNormTimes of cudaops/bench time on
plans: the same names and shapes, the bytes that must move.

	STHENO_TIMES='pool|im2col|scatter' go test ./cudaops/bench -run Times -v
	python3 bench/layer_peers.py 'pool|im2col|scatter'

Eager, operands of about a gigabyte on the device, timed by the method of bench/timing.py.
"""

import re
import sys

import torch
import torch.nn.functional as F

from timing import median_us

ELEMENTS = 1 << 28
PATTERN = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")


def show(name, elements, f):
    """Times a call that moves so many float32, if its name is wanted."""
    if PATTERN.search(name):
        us = median_us(lambda _: f())
        print(f"{name:52} {us:9.2f} us {4 * elements / us / 1e3:6.0f} GB/s", flush=True)


def pools():
    aten = torch.ops.aten
    for side, size, stride, pad in (28, 2, 2, 0), (112, 2, 2, 0), (7, 2, 2, 0), (112, 3, 2, 1), (56, 3, 1, 1), (13, 5, 1, 2):
        x = torch.rand(ELEMENTS // (64 * side * side), 64, side, side, device="cuda").mul_(2).sub_(1)
        window = [size, size], [stride, stride], [pad, pad]
        y, which = aten.max_pool2d_with_indices(x, *window)
        dy = torch.rand_like(y)
        name, both = f"of {side} x {side}, {size} by {stride}, pad {pad}", x.numel() + y.numel()
        show("max-pool " + name, both, lambda: aten.max_pool2d_with_indices(x, *window))
        show("max-pool derivative " + name, both + x.numel(), lambda: aten.max_pool2d_with_indices_backward(dy, x, *window, [1, 1], False, which))
        show("average-pool " + name, both, lambda: aten.avg_pool2d(x, *window))
        show("average-pool derivative " + name, both, lambda: aten.avg_pool2d_backward(dy, x, *window, False, True, None))


def columns():
    for channels, side, size, stride, pad in (
        (32, 14, 3, 1, 1), (64, 7, 3, 1, 1), (1, 28, 3, 1, 1), (64, 56, 3, 1, 1), (128, 28, 3, 2, 1), (3, 224, 7, 2, 3), (256, 56, 1, 1, 0), (16, 60, 5, 1, 0),
    ):
        windows = (side + 2 * pad - size) // stride + 1
        x = torch.rand(ELEMENTS // (windows * windows * channels * size * size), channels, side, side, device="cuda")
        y = F.unfold(x, size, padding=pad, stride=stride)
        name, both = f"of {channels} channels, {side} x {side}, {size} by {stride}, pad {pad}", x.numel() + y.numel()
        show("im2col " + name, both, lambda: F.unfold(x, size, padding=pad, stride=stride))
        show("col2im " + name, both, lambda: F.fold(y, (side, side), size, padding=pad, stride=stride))


def indices():
    for words, size, count, equal in (
        (50_000, 1024, 4096, False), (50_000, 1024, 4096, True), (50_000, 1024, 1 << 18, False), (50_000, 1024, 1 << 18, True),
        (50_000, 768, 1 << 15, False), (1 << 20, 64, 1 << 16, False), (1 << 20, 63, 1 << 16, False), (1000, 1024, 1 << 18, False),
    ):
        which = torch.full((count,), 7, device="cuda") if equal else torch.randint(words, (count,), device="cuda")
        table, dy = torch.rand(words, size, device="cuda"), torch.rand(count, size, device="cuda")
        name = f"{count} of {words} x {size}" + (", all equal" if equal else "")
        show("gather " + name, 2 * count * size, lambda: F.embedding(which, table))
        show("scatter " + name, (count + words) * size, lambda: torch.ops.aten.embedding_dense_backward(dy, which, words, -1, False))


def moves():
    for shape in (64, 1024, 4096), (256, 1021, 1027), (1 << 16, 49, 84):
        x = torch.rand(shape[0], shape[2], shape[1], device="cuda")
        show(f"transpose f32 {list(shape)}", 2 * x.numel(), lambda: x.transpose(1, 2).contiguous())
    for extents in (512, 512), (1000, 24), (999, 25):
        parts = [torch.rand(1 << 18, n, device="cuda") for n in extents]
        show(f"concat {list(extents)} of [262144 1024] along 1", 2 << 28, lambda: torch.cat(parts, 1))
    for columns, first in (1056, 16), (1027, 1):
        x = torch.rand(1 << 18, columns, device="cuda")
        show(f"slice of {columns} columns from {first} on [262144 1024]", 2 << 28, lambda: x[:, first : first + 1024].contiguous())
    show("uniform", ELEMENTS, lambda: torch.rand(ELEMENTS, device="cuda"))
    show("gaussian", ELEMENTS, lambda: torch.randn(ELEMENTS, device="cuda"))


def norms():
    for shape in (64, 256, 128, 128), (256, 64, 128, 128):
        x, weight, bias = torch.rand(shape, device="cuda"), torch.rand(shape[1], device="cuda"), torch.rand(shape[1], device="cuda")
        show(f"batch norm of {list(shape)}", 3 * x.numel(), lambda: F.batch_norm(x, None, None, weight, bias, True))


for part in pools, columns, indices, moves, norms:
    part()
    torch.cuda.empty_cache()
