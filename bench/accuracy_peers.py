#!/usr/bin/env python3
"""Computes products by cuBLAS.

    stheno maintain cases products --json --operands FOLDER > cases.json
    python3 bench/accuracy_peers.py cases.json FOLDER
    stheno maintain record products --all --peers FOLDER --json OUT

The folder has the operands, row-major float32; the results go there too, and the library's name, into the file "by". Wants
NumPy and PyTorch with CUDA.
"""

import json
import pathlib
import sys

import numpy as np
import torch

torch.backends.cuda.matmul.allow_tf32 = False


def main(cases, folder):
    folder = pathlib.Path(folder)
    (folder / "by").write_text(f"cuBLAS SGEMM (PyTorch {torch.__version__.split('+')[0]} mm)\n")
    read = lambda file, rows, cols: torch.from_numpy(np.fromfile(folder / file, dtype="f4").reshape(rows, cols)).cuda()
    for case in json.loads(pathlib.Path(cases).read_text()):
        m, n, k = case["m"], case["n"], case["k"]
        torch.mm(read(case["a"], m, k), read(case["b"], k, n)).cpu().numpy().tofile(folder / case["c"])


if __name__ == "__main__":
    main(*sys.argv[1:])
