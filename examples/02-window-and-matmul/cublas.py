"""cuBLAS, by PyTorch, on the products of warpgroups.go: name and microseconds, a line each.

    python3 cublas.py > cublas.csv
    ./02-window-and-matmul -cublas cublas.csv -record recorded.json

As there, operands are random and take turns beyond the level-2 cache, and a time is the mean of some 9 ms after 50 ms of the same.
"""
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = False


def us(n, dtype):
    """The mean time of a product of n x n matrices with a result in float32."""
    turns = max(1, 4 * torch.cuda.get_device_properties(0).L2_cache_size // (12 * n * n) + 1)
    operands = [[(2 * torch.rand(n, n, device="cuda") - 1).to(dtype) for _ in range(2)] for _ in range(turns)]

    def product(i):
        a, b = operands[i % turns]
        return torch.mm(a, b) if dtype == torch.float32 else torch.mm(a, b, out_dtype=torch.float32)

    def span(runs):
        """The time of so many products, one after the other, in microseconds."""
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for i in range(runs):
            product(i)
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) * 1000

    product(0)
    torch.cuda.synchronize()
    time.sleep(0.3)
    runs, warm = 1, 0
    while warm < 50_000:
        each = span(runs) / runs
        warm, runs = warm + each * runs, 2 * runs
    return span(9 * max(1, round(1000 / each))) / (9 * max(1, round(1000 / each)))


for n in 4096, 8192:
    for name, dtype in ("float32", torch.float32), ("BF16", torch.bfloat16):
        print(f"{name} {n},{us(n, dtype):.2f}", flush=True)
