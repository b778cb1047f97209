#!/usr/bin/env python3
"""Computes the products of `stheno maintain cases accuracy` by cuBLAS.

    stheno maintain cases accuracy > cases.json
    python3 bench/accuracy_peers.py cases.json FOLDER
    stheno maintain record accuracy --peers FOLDER --json OUT

Makes the very same operands, which their sums show, and writes the results, row-major float32, into
the folder, and the library's name into the file "by" there. Wants NumPy and PyTorch with CUDA.
"""

import json
import pathlib
import sys

import numpy as np
import torch

torch.backends.cuda.matmul.allow_tf32 = False


def mix(x):
    """internal/accuracy's bijection of 32 bits."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def matrix(kind, seed, rows, cols):
    """rows x cols elements of a kind, as internal/accuracy has them."""
    i = np.arange(rows * cols, dtype=np.uint32)
    h = mix(i + mix(np.array([seed], dtype=np.uint32)))
    g = mix(h + np.uint32(0x9E3779B9))
    signed = (h >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    r, c = np.arange(rows)[:, None], np.arange(cols)[None, :]

    def power(e):
        return np.ldexp(signed.astype(np.float64), e).astype(np.float32)

    def bits(x):
        return x.astype(np.uint32).view(np.float32)

    denormal = bits(h & np.uint32(0x807FFFFF))
    if kind == "signed":
        x = signed
    elif kind == "positive":
        x = (h >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    elif kind == "spread":
        x = power((g % 121).astype(np.int32) - 60)
    elif kind in ("rows", "columns", "far rows"):
        line = np.broadcast_to(c if kind == "columns" else r, (rows, cols)).astype(np.uint32).reshape(-1)
        least = -120 if kind == "far rows" else -62
        x = power((mix(line) % np.uint32(1 - 2 * least)).astype(np.int32) + least)
    elif kind == "sizes":
        x = power((g % 221).astype(np.int32) - 120)
    elif kind in ("tiny", "huge", "small", "greatest", "least"):
        x = power({"tiny": -130, "huge": 110, "small": -70, "greatest": 127, "least": -9}[kind])
    elif kind == "denormal":
        x = denormal
    elif kind == "mixed":
        x = np.where(g % 16 == 0, denormal, signed)
    elif kind == "bits":
        x = bits(h & np.uint32(0x807FFFFF) | (g % np.uint32(254)) << np.uint32(23))
    elif kind == "identity":
        x = (r == c).astype(np.float32)
    elif kind == "permutation":
        x = ((r * 5 + 3) % rows == c).astype(np.float32)
    elif kind == "onehot":
        x = (mix(np.arange(rows, dtype=np.uint32)).astype(np.int64)[:, None] % rows == c).astype(np.float32)
    elif kind == "whole":
        x = (((h >> np.uint32(8)) % np.uint32(127)).astype(np.int32) - 63).astype(np.float32)
    elif kind == "special":
        k = g % 997
        x = np.where(k == 0, bits(h | np.uint32(0x7F800001)), np.where(k == 1, bits(h & np.uint32(0x80000000) | np.uint32(0x7F800000)), signed))
    else:
        raise ValueError(f"kind {kind}")
    return np.ascontiguousarray(x.reshape(rows, cols).astype(np.float32, copy=False))


def total(x):
    """The sum of the bits of elements, each times twice its number and 1, modulo 2^64."""
    bits = x.reshape(-1).view(np.uint32).astype(np.uint64)
    return int((bits * (np.arange(bits.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1))).sum(dtype=np.uint64))


def main(cases, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "by").write_text(f"cuBLAS SGEMM (PyTorch {torch.__version__.split('+')[0]} mm)\n")
    for case in json.loads(pathlib.Path(cases).read_text()):
        a = matrix(case["a"], 1, case["m"], case["k"])
        b = matrix(case["b"], 2, case["k"], case["n"])
        if [total(a), total(b)] != case["sums"]:
            sys.exit(f"{case['file']}: the operands have the sums {[total(a), total(b)]}, want {case['sums']}")
        torch.mm(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()).cpu().numpy().tofile(folder / case["file"])


if __name__ == "__main__":
    main(*sys.argv[1:])
