"""Writes the network of this program with random weights, and what PyTorch computes of it.

    python make.py

model.safetensors has the weights in F16; logits.safetensors images x and, in float32 from the weights of the file, their logits. Wants torch, numpy and safetensors.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        h = F.relu(self.conv2(F.max_pool2d(F.relu(self.conv1(x)), 2)))
        return self.fc(F.max_pool2d(F.relu(self.conv3(h)), 2).flatten(1))


torch.manual_seed(20261127)
torch.set_num_threads(1)  # so that sums have one order
here, model = Path(__file__).parent, ConvNet()
save_file({n: t.half() for n, t in model.state_dict().items()}, here / "model.safetensors", metadata={"format": "pt"})
model.load_state_dict({n: t.float() for n, t in load_file(here / "model.safetensors").items()})
x = torch.rand(5, 1, 8, 8)
with torch.no_grad():
    save_file({"x": x, "logits": model.eval()(x)}, here / "logits.safetensors")
