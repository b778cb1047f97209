#!/usr/bin/env python3
"""Times other libraries on the cases of `stheno bench`, on this machine's GPU.

    python3 bench/peers.py peers.json [text [pattern]]                 ops: bench/op_peers.py
    python3 bench/peers.py -graphs peers.json [pattern [seconds]]      whole graphs: bench/graph_peers.py
    python3 bench/peers.py -steps peers.json [pattern [seconds]]       training steps: bench/step_peers.py
    python3 bench/peers.py -random shapes.json peers.json [pattern]    drawn cases: bench/random_peers.py

Writes an array of {op, case, dtype, by, median_us}; op, case and dtype are
those of the row that it is set beside. Wants PyTorch with CUDA; CuPy is used
where it is installed, CUB (bench/cub.cu) where nvcc is. A peer that cannot do a
case is told and left out. The histogram of a text is timed if one is given. With a
pattern, a regular expression, cases are timed whose op/case/dtype it is found in. With seconds,
600 if there are none, whole graphs and training steps end by then, with what they have.

bench/timing.py describes the method, which is that of `stheno bench`.
"""

import sys


def main(arguments):
    kind = arguments.pop(0) if arguments[:1] and arguments[0].startswith("-") else "-ops"
    least = 2 if kind == "-random" else 1
    if kind not in ("-ops", "-graphs", "-steps", "-random") or not least <= len(arguments) <= 3:
        return __doc__
    import torch

    from timing import TORCH, median_us

    print(torch.cuda.get_device_name(), TORCH)
    if kind == "-ops":
        import op_peers

        return op_peers.main(*arguments)
    if kind == "-random":
        import random_peers

        return random_peers.main(*arguments)
    import graph_peers
    import step_peers

    peers = graph_peers if kind == "-graphs" else step_peers
    path, pattern, seconds = arguments + ["", "600"][len(arguments) - 1 :]
    return peers.main(path, pattern, median_us, float(seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
