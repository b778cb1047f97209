"""Writes what PyTorch's modules compute, for the tests of package nn.

    python make.py

modules.safetensors has, for each module of CASES, added and later, its state in training as NAME/parameter, the inputs NAME/.x, the output NAME/.y, the gradients of sum(y * NAME/.g)
by inputs and parameters, NAME/.dx and NAME/.d/parameter, buffers after the run NAME/.next/buffer, and the output of evaluation NAME/.evaluated. Wants torch,
numpy and safetensors.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

torch.manual_seed(20261126)


class Output(nn.Module):
    """The first output of a module."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class Attention(nn.Module):
    """Causal or full self-attention."""

    def __init__(self, width, heads, causal, bias=True):
        super().__init__()
        self.inner, self.causal = nn.MultiheadAttention(width, heads, bias=bias, batch_first=True), causal

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if self.causal else None
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


class Rotary(nn.Module):
    """Causal attention of x, with rotated queries and keys, as in models with rotate_half."""

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in x.chunk(3, -1))
        width, time = q.shape[-1], q.shape[-2]
        angles = torch.arange(time)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

        def turn(t):
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        return F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True).transpose(1, 2).flatten(-2)


class Loss(nn.Module):
    """A loss of x and a fixed target."""

    def __init__(self, inner, target):
        super().__init__()
        self.inner, self.target = inner, target

    def forward(self, x):
        return self.inner(x, self.target)


def block(width):
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Sequential(nn.Linear(2 * width, width), nn.Tanh()))


LABELS = torch.tensor([[2, 0, 1], [1, 1, 2]])
TARGETS = torch.tensor([[0.0, 1.0, 0.25], [1.0, 0.0, 0.5]])

CASES = {
    "linear": (nn.Linear(5, 3), (2, 4, 5)),
    "linear_no_bias": (nn.Linear(5, 3, bias=False), (4, 5)),
    "layer_norm": (nn.LayerNorm(6), (2, 3, 6)),
    "rms_norm": (nn.RMSNorm(6, eps=1e-5), (2, 3, 6)),
    "batch_norm_1d": (nn.BatchNorm1d(3), (7, 3)),
    "batch_norm_2d": (nn.BatchNorm2d(3, momentum=0.3, eps=1e-3), (4, 3, 5, 2)),
    "conv1d": (nn.Conv1d(3, 4, 3, stride=2, padding=1), (2, 3, 8)),
    "conv2d": (nn.Conv2d(3, 4, 3, padding=1), (2, 3, 5, 6)),
    "conv2d_stride": (nn.Conv2d(2, 3, 5, stride=2, padding=2, bias=False), (2, 2, 7, 8)),
    "max_pool": (nn.MaxPool2d(2), (2, 3, 4, 6)),
    "max_pool_3": (nn.MaxPool2d(3, stride=2, padding=1), (2, 3, 7, 6)),
    "avg_pool": (nn.AvgPool2d(2), (2, 3, 4, 6)),
    "avg_pool_3": (nn.AvgPool2d(3, stride=2, padding=1), (2, 3, 7, 6)),
    "global_avg_pool": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (2, 3, 4, 5)),
    "relu": (nn.ReLU(), (3, 4)),
    "gelu": (nn.GELU(), (3, 4)),
    "gelu_tanh": (nn.GELU(approximate="tanh"), (3, 4)),
    "silu": (nn.SiLU(), (3, 4)),
    "tanh": (nn.Tanh(), (3, 4)),
    "sigmoid": (nn.Sigmoid(), (3, 4)),
    "flatten": (nn.Flatten(), (2, 3, 2)),
    "sequential": (block(4), (3, 4)),
    "attention": (Attention(12, 3, causal=False), (2, 5, 12)),
    "attention_causal": (Attention(8, 2, causal=True, bias=False), (2, 6, 8)),
    "rotary": (Rotary(2), (2, 5, 24)),
    "lstm": (Output(nn.LSTM(3, 5, num_layers=2, batch_first=True)), (2, 4, 3)),
    "lstm_no_bias": (Output(nn.LSTM(3, 4, bias=False, batch_first=True)), (2, 3, 3)),
    "gru": (Output(nn.GRU(3, 5, num_layers=2, batch_first=True)), (2, 4, 3)),
    "cross_entropy": (Loss(lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten()), LABELS), (2, 3, 3)),
    "mse": (Loss(nn.MSELoss(), TARGETS), (2, 3)),
    "bce": (Loss(nn.BCEWithLogitsLoss(), TARGETS), (2, 3)),
}


def added():
    """Cases made after the values of CASES, which keep theirs."""
    rows = torch.tensor([[2, -100, 1], [-100, 1, 0]])
    return {
        "conv1d_dilation": (nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2), (2, 3, 11)),
        "conv2d_dilation": (nn.Conv2d(2, 3, 3, padding=1, dilation=2), (2, 2, 7, 6)),
        "conv1d_groups": (nn.Conv1d(6, 4, 3, padding=1, groups=2, bias=False), (2, 6, 7)),
        "conv2d_groups": (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (3, 4, 5, 7)),
        "conv2d_depthwise": (nn.Conv2d(3, 6, 3, stride=2, padding=2, dilation=3, groups=3), (2, 3, 9, 8)),
        "lstm_bidirectional": (Output(nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True)), (2, 5, 3)),
        "lstm_dropout": (Output(nn.LSTM(3, 4, num_layers=3, batch_first=True, dropout=1.0)), (2, 4, 3)),
        "gru_bidirectional": (Output(nn.GRU(3, 4, batch_first=True, bias=False, bidirectional=True)), (2, 4, 3)),
        "group_norm": (nn.GroupNorm(2, 6), (3, 6, 4, 2)),
        "instance_norm": (nn.InstanceNorm1d(3, affine=True, eps=1e-3), (2, 3, 5)),
        "max_pool_1d": (nn.MaxPool1d(3, stride=2, padding=1), (2, 3, 8)),
        "avg_pool_1d": (nn.AvgPool1d(2), (2, 3, 7)),
        "leaky_relu": (nn.LeakyReLU(0.1), (3, 4)),
        "l1": (Loss(nn.L1Loss(), TARGETS), (2, 3)),
        "smooth_l1": (Loss(nn.SmoothL1Loss(), TARGETS), (2, 3)),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu", norm_first=True), (2, 5, 8)),
        "encoder_post": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
        "cross_entropy_rows": (Loss(lambda x, t: F.cross_entropy(x.mT, t, reduction="none"), rows), (2, 3, 3)),
        "cross_entropy_smoothing": (Loss(lambda x, t: F.cross_entropy(x.mT, t, label_smoothing=0.2), rows), (2, 3, 3)),
        "conv_transpose1d": (nn.ConvTranspose1d(3, 4, 4, stride=3, padding=1, output_padding=2, dilation=2), (2, 3, 5)),
        "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 3, 5)),
        "conv_transpose2d_no_bias": (nn.ConvTranspose2d(3, 2, 2, bias=False), (2, 3, 4, 3)),
    }


class Padded(nn.Module):
    """Self-attention, perhaps causal, to as many of the first positions of each sequence as counts has."""

    def __init__(self, width, heads, counts, causal):
        super().__init__()
        self.inner, self.counts, self.causal = nn.MultiheadAttention(width, heads, batch_first=True), torch.tensor(counts), causal

    def forward(self, x):
        behind = torch.arange(x.shape[1]) >= self.counts[:, None]
        mask = torch.ones(2 * [x.shape[1]], dtype=torch.bool).triu(1) if self.causal else None
        return self.inner(x, x, x, key_padding_mask=behind, attn_mask=mask, need_weights=False)[0]


def later():
    """Cases made after those of added."""
    labels, w = torch.tensor([[2, -100, 1], [-100, 1, 0]]), torch.tensor([0.5, 2.0, 0.0])
    return {
        "attention_padded": (Padded(12, 3, [4, 1, 5], causal=False), (3, 5, 12)),
        "attention_padded_causal": (Padded(8, 2, [3, 6], causal=True), (2, 6, 8)),
        "cross_entropy_weights": (Loss(lambda x, t: F.cross_entropy(x.mT, t, weight=w), labels), (2, 3, 3)),
        "cross_entropy_weights_rows": (Loss(lambda x, t: F.cross_entropy(x.mT, t, weight=w, reduction="none"), labels), (2, 3, 3)),
        "cross_entropy_weights_smoothing": (Loss(lambda x, t: F.cross_entropy(x.mT, t, weight=w, label_smoothing=0.2), labels), (2, 3, 3)),
    }


def main():
    out = {}

    def put(name, t):
        out[name] = t.detach().clone().contiguous()

    def record(name, module, shape):
        x = 2 * torch.randn(shape)
        with torch.no_grad():
            for n, p in module.named_parameters():
                if p.dim() < 2:
                    p += 0.3 * torch.randn_like(p)  # of biases and norms, which would begin with 0 and 1
            for n, b in module.named_buffers():
                if b.is_floating_point():
                    b += torch.rand_like(b)
        short = lambda n: n.removeprefix("inner.")
        for n, t in module.state_dict().items():
            put(f"{name}/{short(n)}", t)
        put(f"{name}/.evaluated", module.eval()(x))
        module.train()
        x.requires_grad_()
        y = module(x)
        g = torch.randn_like(y)
        (y * g).sum().backward()
        for n, t in {"x": x, "y": y, "g": g, "dx": x.grad}.items():
            put(f"{name}/.{n}", t)
        for n, p in module.named_parameters():
            put(f"{name}/.d/{short(n)}", p.grad)
        for n, b in module.named_buffers():
            put(f"{name}/.next/{short(n)}", b)

    for name, case in CASES.items():
        record(name, *case)
    ids = torch.tensor([[1, 4, 1], [0, 2, 4]])
    table = nn.Embedding(5, 4)
    put("embedding/weight", table.weight)
    put("embedding/.y", table(ids))
    for cases in added, later:
        for name, case in cases().items():
            record(name, *case)
    save_file(out, Path(__file__).parent / "modules.safetensors")


if __name__ == "__main__":
    main()
