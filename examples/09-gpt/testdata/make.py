"""Writes the GPT of this program with random weights, in its smallest size, and what PyTorch computes of it.

    python make.py

model.safetensors has the weights in F16; logits.safetensors letters x and, in float32 from the weights of the file, the logits of the last four. Wants torch, numpy and safetensors.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, CONTEXT = 2, 32, 2, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h, later = self.norm1(x), torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        x = x + self.attn(h, h, h, attn_mask=later, need_weights=False)[0]
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.block, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)

    def forward(self, x):
        h = self.letters(x) + self.positions.weight
        for block in self.block:
            h = block(h)
        return self.norm(h) @ self.letters.weight.T


torch.manual_seed(20261127)
torch.set_num_threads(1)  # so that sums have one order
here, model = Path(__file__).parent, GPT()
with torch.no_grad():
    for p in model.parameters():
        p += 0.1 * torch.randn_like(p)  # also to biases and norms, which would begin with 0 and 1
    save_file({n: t.half() for n, t in model.state_dict().items()}, here / "model.safetensors", metadata={"format": "pt"})
    model.load_state_dict({n: t.float() for n, t in load_file(here / "model.safetensors").items()})
    x = torch.randint(256, (2, CONTEXT))
    save_file({"x": x.to(torch.uint8), "logits": model.eval()(x)[:, -4:].contiguous()}, here / "logits.safetensors")
