#!/usr/bin/env python3
"""Losses of the training of TestLossCurves of package nn in PyTorch, in float64, in float32 and by autocast to BF16.

    python3 bench/losses.py FOLDER

FOLDER has the text, text.txt, and the first parameters, gpt.safetensors. Writes FOLDER/peers.json: for each precision the 500 losses.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, STEPS = 4, 256, 4, 256, 16, 500


def parameters(path):
    """The tensors of float32 of a file."""
    raw = open(path, "rb").read()
    begin = 8 + int.from_bytes(raw[:8], "little")
    list = {n: t for n, t in json.loads(raw[8:begin]).items() if n != "__metadata__"}
    return {n: torch.frombuffer(bytearray(raw[begin:][slice(*t["data_offsets"])]), dtype=torch.float32).view(t["shape"]) for n, t in list.items()}


def loss_of(p, tokens, labels):
    norm = lambda x, at: F.layer_norm(x, (WIDTH,), p[at + ".weight"], p[at + ".bias"])
    linear = lambda x, at: F.linear(x, p[at + ".weight"], p[at + ".bias"])
    heads = lambda x: x.view(BATCH, CONTEXT, HEADS, -1).transpose(1, 2)
    x = F.embedding(tokens, p["wte.weight"]) + p["wpe.weight"][:CONTEXT]
    for i in range(LAYERS):
        h = f"h.{i}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(WIDTH, -1)
        y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        x = x + linear(y.transpose(1, 2).reshape(x.shape), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    logits = norm(x, "ln_f") @ p["wte.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def losses(folder, device, dtype, half=False):
    text = torch.frombuffer(bytearray(open(os.path.join(folder, "text.txt"), "rb").read()), dtype=torch.uint8).long().to(device)
    p = {n: w.to(device, dtype).requires_grad_() for n, w in parameters(os.path.join(folder, "gpt.safetensors")).items()}
    optimizer = torch.optim.AdamW(p.values(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    list = []
    for step in range(STEPS):
        begin = (step * BATCH + torch.arange(BATCH, device=device)) * 65537 % (len(text) - CONTEXT)
        at = begin[:, None] + torch.arange(CONTEXT, device=device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=half):
            loss = loss_of(p, text[at], text[at + 1])
        loss.backward()
        optimizer.step()
        list.append(loss.detach())
    return torch.stack(list).double().tolist()


if __name__ == "__main__":
    torch.set_float32_matmul_precision("highest")
    by = "PyTorch " + torch.__version__.split("+")[0]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    list = [{"by": by, "in": n, "losses": losses(sys.argv[1], device, *how)}
            for n, how in (("float64", [torch.float64]), ("float32", [torch.float32]), ("BF16", [torch.float32, True]))]
    with open(os.path.join(sys.argv[1], "peers.json"), "w") as out:
        json.dump(list, out)
