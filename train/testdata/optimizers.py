"""Writes what PyTorch's optimizers and schedules do, for the tests of package train.

    python optimizers.py

optimizers.json has, for each case, the parameter after twelve steps down sum(curvature * (parameter - target)²), in float64, and for each schedule the learning rates.
Wants torch.
"""

import json
from pathlib import Path

import torch
from torch import optim
from torch.optim import lr_scheduler as lr

CASES = {
    "SGD": lambda p: (optim.SGD(p, 0.05), None),
    "SGD, decay": lambda p: (optim.SGD(p, 0.05, weight_decay=0.1), None),
    "SGD, momentum": lambda p: (optim.SGD(p, 0.05, momentum=0.9), None),
    "SGD, momentum, decay, StepLR": lambda p: step(optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1)),
    "Adam": lambda p: (optim.Adam(p), None),
    "Adam, StepLR": lambda p: step(optim.Adam(p, 0.05, betas=(0.8, 0.95), eps=1e-3)),
    "Adam, decay": lambda p: (optim.Adam(p, 0.05, weight_decay=0.1), None),
    "AdamW": lambda p: (optim.AdamW(p), None),
    "AdamW, StepLR": lambda p: step(optim.AdamW(p, 0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2)),
    "RMSprop": lambda p: (optim.RMSprop(p, 0.05, alpha=0.9, eps=1e-12), None),
}


def step(optimizer):
    return optimizer, lr.StepLR(optimizer, 4, 0.5)


def rates(make):
    optimizer = optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    schedule, out = make(optimizer), []
    for _ in range(20):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return out


SCHEDULES = {
    "StepLR": lambda o: lr.StepLR(o, 6, 0.3),
    "ExponentialLR": lambda o: lr.ExponentialLR(o, 0.8),
    "CosineAnnealingLR": lambda o: lr.CosineAnnealingLR(o, 20),
    "LinearLR": lambda o: lr.LinearLR(o, 1, 0, 20),
}


SCORES = [3, 2, 2.5, 1.99985, 2.1, 1.5, 1.6, 1.49999, 1.5, 1.7, 1.4, 1.5, 1.5, 1.5, 1.3, 1.3, 1.3, 1.3, 1.2, 1.2]


def plateau(mode, sign):
    """The learning rates of the epochs whose ends have the scores, or their negatives, before the last."""
    optimizer = optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    schedule, out = lr.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=1), []
    for score in SCORES:
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step(sign * score)
    return out


def main():
    out = {"steps": {}, "rates": {name: rates(make) for name, make in SCHEDULES.items()}}
    out |= {"scores": SCORES, "min": plateau("min", 1), "max": plateau("max", -1)}
    target, curvature = (torch.tensor(v, dtype=torch.float64) for v in ([0, 1, -1, 0.4, 2], [1, 0.5, 2, 3, 0.1]))
    for name, make in CASES.items():
        p = torch.tensor([1, -2, 3, 0.5, 0], dtype=torch.float64, requires_grad=True)
        optimizer, schedule = make([p])
        for _ in range(12):
            optimizer.zero_grad()
            (curvature * (p - target) ** 2).sum().backward()
            optimizer.step()
            if schedule:
                schedule.step()
        out["steps"][name] = p.tolist()
    text = json.dumps(out, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
