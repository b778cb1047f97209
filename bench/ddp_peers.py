#!/usr/bin/env python3
"""Times PyTorch's DistributedDataParallel on one and on several GPUs of a host, and NCCL's all-reduce alone.

    python3 bench/ddp_peers.py OUT [GPUS [NAMES]]

NAMES is a regular expression of what is timed. Adds peers to OUT, an array of records as that of bench/peers.py, for STHENO_RECORD of TestRankTimes. The work is that of this test, of package nn: a perceptron 784-4096-4096-10 (batch 4096
a GPU, SGD, float32 and TF32), GPT-2 124M (batch 8 x 1024 a GPU, AdamW, BF16 by autocast, compiled by Inductor, gradients in float32 and in BF16 by
DDP's hook), and all-reduces in a captured CUDA graph. One GPU is the same program without DDP. Times are the median of 7 means of 10 steps; of an
all-reduce the difference between graphs of 10 and of 2.
"""

import json
import os
import re
import sys

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NVSHMEM_DISABLE_NVLS"] = "1"

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

from timing import TORCH, median_us

MEANS = 7, 10  # of 10 steps
WIDTH, HEADS, LAYERS, CONTEXT, BATCH, WORDS = 768, 12, 12, 1024, 8, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj, self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).view(BATCH, CONTEXT, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.ln = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions.weight
        for b in self.blocks:
            h = b(h)
        return F.cross_entropy((self.ln(h) @ self.tokens.weight.T).view(-1, WORDS), y.view(-1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))

    def forward(self, x, y):
        return F.cross_entropy(self.layers(x), y)


def step_us(model, optimizer, x, y, half):
    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = model(x, y)
        loss.backward()
        optimizer.step()

    return median_us(lambda _: step(), *MEANS)


def reduce_us(count):
    """Of one all-reduce, by graphs of 2 and of 10."""
    x, took = torch.rand(count, device="cuda"), {}
    for n in (2, 10):
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(n):
                dist.all_reduce(x, op=dist.ReduceOp.AVG)
        took[n] = median_us(lambda _: graph.replay(), *MEANS)
        dist.barrier()
    return (took[10] - took[2]) / 8


def main(rank, gpus, path, port, names):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(gpus), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))

    def add(op, case, time, by=TORCH):
        if not re.search(names, op + ", " + case):
            return
        us = time()
        if rank > 0:
            return
        print(op, case, round(us, 1), flush=True)
        records = json.load(open(path)) if os.path.exists(path) else []
        records.append({"kind": "peer", "op": op, "case": case, "dtype": "f32", "by": by, "us": round(us, 2)})
        with open(path, "w") as f:
            json.dump(records, f)

    several = f"{gpus} GPUs" if gpus > 1 else "1 GPU"
    if gpus > 1:
        for k in range(10, 31, 2):
            size = f"{1 << k - 10} KB" if k < 20 else f"{1 << k - 20} MB"
            add("all-reduce", f"{size}, {several}", lambda: reduce_us((1 << k) // 4), "NCCL " + ".".join(map(str, torch.cuda.nccl.version())))
    ddp = lambda m: nn.parallel.DistributedDataParallel(m, device_ids=[rank], gradient_as_bucket_view=True)
    x, y = torch.randn(4096, 784, device="cuda"), torch.randint(0, 10, (4096,), device="cuda")
    for precision in ("", ", TF32"):
        torch.backends.cuda.matmul.allow_tf32 = precision != ""
        m = MLP().cuda()
        m = ddp(m) if gpus > 1 else m
        o = torch.optim.SGD(m.parameters(), lr=0.01, fused=True)
        add("MLP 784-4096-4096-10, SGD" + precision, several, lambda: step_us(m, o, x, y, False))
        dist.barrier()
    torch.set_float32_matmul_precision("high")
    x, y = (torch.randint(0, WORDS, (BATCH, CONTEXT), device="cuda") for _ in range(2))
    for hook in (None, bf16_compress_hook) if gpus > 1 else (None,):
        torch._dynamo.reset()
        m = GPT().cuda()
        if gpus > 1:
            m = ddp(m)
            if hook:
                m.register_comm_hook(None, hook)
        o = torch.optim.AdamW(m.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        add("GPT-2 124M, BF16", several + (", gradients in BF16" if hook else ""), lambda: step_us(torch.compile(m), o, x, y, True))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    gpus = int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count()
    mp.spawn(main, (gpus, sys.argv[1], 29512 + gpus, sys.argv[3] if len(sys.argv) > 3 else ""), gpus)
