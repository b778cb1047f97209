#!/usr/bin/env python3
"""Times other libraries on cases of Stheno's, on this machine's GPU.

    stheno maintain cases SET --json > cases.json     ops, graphs or steps; or stheno bench gpu --random 500 --list
    python3 bench/peers.py cases.json peers.json [seconds]

Writes an array of records {kind, op, case, dtype, by, us}; op, case and dtype are those of the case. Wants PyTorch with CUDA; CuPy is
used where it is installed, CUB (bench/cub.cu) where nvcc is, JAX for graphs and steps. A peer that cannot do a
case is told and left out. All end within seconds, 600 if there are none, with what they have.

bench/timing.py describes the method, which is that of `stheno bench`; bench/op_peers.py, graph_peers.py and step_peers.py have the programs.
"""

import json
import sys


def main(arguments):
    if not 2 <= len(arguments) <= 3:
        return __doc__
    import torch

    from timing import TORCH, median_us

    print(torch.cuda.get_device_name(), TORCH)
    with open(arguments[0]) as file:
        cases = json.load(file)
    seconds = float((arguments[2:] or [600])[0])
    if not cases:
        return "no cases"
    if "shapes" in cases[0]:
        import op_peers

        return op_peers.run(cases, arguments[1], seconds)
    import graph_peers
    import step_peers

    peers = step_peers if "rule" in cases[0] else graph_peers
    return peers.run(*arguments[:2], median_us, seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
