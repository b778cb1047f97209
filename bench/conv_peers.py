"""Times cuDNN, through PyTorch, on the layers that TestConvDrawnTimes of cudaops/bench times on plans. It reads the lines
of that test, takes the layers and the times from them, and prints each layer, cuDNN's time over ours, the geometric mean and the worst.

	STHENO_TIMES=. go test ./cudaops/bench -run TestConvDrawnTimes -v | tee times.log
	python3 bench/conv_peers.py SECONDS < times.log

cuDNN searches for its best algorithm (benchmark mode), and calls are captured in CUDA graphs. For TF32, BF16 and F16 the better of
channels first and channels last counts, as it does of the plans. Operands of BF16 and F16 are given to cuDNN in 16 bits. So do plans with channels
last; with channels first they read and write float32.
"""

import math
import re
import sys
import time

import torch

from timing import median_us

LAYER = re.compile(r"layer ((?:\d+ ){13})(\S+) (\S+) ([\d.]+) us")


def graphed(call, sets):
    graphs = []
    for operands in sets:
        for _ in range(2):
            call(*operands)
        torch.cuda.synchronize()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            call(*operands)
    return lambda i: graphs[i % len(graphs)].replay()


def cudnn_us(sizes, result, precision, layout):
    images, channels, filters, groups, high, wide, r, s, stride_y, stride_x, dilation, pad_y, pad_x = sizes
    torch.backends.cudnn.allow_tf32 = precision == "TF32"
    how = dict(device="cuda", dtype={"BF16": torch.bfloat16, "F16": torch.float16}.get(precision, torch.float32))
    options = (stride_y, stride_x), (pad_y, pad_x), (dilation, dilation)

    def operands():
        x = torch.randn(images, channels, high, wide, **how).contiguous(memory_format=layout)
        w = torch.randn(filters, channels // groups, r, s, **how).contiguous(memory_format=layout)
        return x, w, torch.randn_like(torch.conv2d(x, w, None, *options, groups))

    def call(x, w, y):
        if result == "conv":
            return torch.conv2d(x, w, None, *options, groups)
        wanted = [result == "conv_images", result == "conv_filters", False]
        return torch.ops.aten.convolution_backward(y, x, w, None, *options, False, (0, 0), groups, wanted)

    first = operands()
    size = sum(t.numel() * t.element_size() for t in first)
    sets = [first] + [operands() for _ in range(min(-(-200_000_000 // size), 3) - 1)]
    return median_us(graphed(call, sets), 7, warm=10)


until, ratios = time.monotonic() + float(sys.argv[1]), []
for line in sys.stdin:
    found = LAYER.search(line)
    if not found:
        continue
    if time.monotonic() > until:
        print("out of time")
        break
    sizes, result, precision, us = [int(n) for n in found[1].split()], found[2], found[3], float(found[4])
    layouts = [torch.contiguous_format] + [torch.channels_last] * (precision in ("TF32", "BF16", "F16"))
    try:
        best = min(cudnn_us(sizes, result, precision, layout) for layout in layouts)
    except Exception as e:
        print(f"cuDNN failed: {str(e)[:80]}: {line.strip()}")
        continue
    ratios.append((best / us, line.strip()))
    print(f"{best / us:6.2f} cuDNN {best:9.2f} us, {line.strip()}", flush=True)
    torch.cuda.empty_cache()
ratios.sort()
if ratios:
    print(f"{len(ratios)} layers, geometric mean {math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios)):.2f}, {sum(r < 0.6 for r, _ in ratios)} below 0.6")
    for precision in ("float32", "TF32", "BF16", "F16"):
        some = [r for r, line in ratios if f" {precision} " in line]
        if some:
            print(f"{precision}: {len(some)} layers, geometric mean {math.exp(sum(map(math.log, some)) / len(some)):.2f}")
    for ratio, line in ratios[:10]:
        print(f"worst {ratio:.2f} {line}")
