"""Writes a ResNet-18 for 32 x 32 images, as torchvision names its parameters, and what PyTorch computes of it.

    python make.py

resnet.safetensors has the weights, of WIDTH channels, in F16; logits.safetensors the images x and, in float32 from the weights of the file, the logits of evaluation, evaluated, and
those of a batch that trains, trained. Running means are those of some images of noise. Wants torch, numpy and safetensors.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

WIDTH, CLASSES = 4, 10


class Block(nn.Module):
    def __init__(self, inputs, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu, self.downsample = nn.ReLU(), None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, channels, width, classes):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        self.layer1 = nn.Sequential(Block(width, width, 1), Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(Block(4 * width, 8 * width, 2), Block(8 * width, 8 * width, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def main():
    torch.manual_seed(20261127)
    torch.set_num_threads(1)  # so that sums have one order
    here, model = Path(__file__).parent, ResNet(1, WIDTH, CLASSES)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p += 0.2 * torch.randn_like(p)  # of biases and norms, which would begin with 0 and 1
        for _ in range(30):
            model(torch.randn(16, 1, 32, 32))
        state = {n: t for n, t in model.state_dict().items()}
        save_file({n: t.half() if t.is_floating_point() else t for n, t in state.items()}, here / "resnet.safetensors", metadata={"format": "pt"})
        model.load_state_dict({n: t.to(state[n].dtype) for n, t in load_file(here / "resnet.safetensors").items()})
        x = torch.randn(4, 1, 32, 32)
        out = {"x": x, "evaluated": model.eval()(x), "trained": model.train()(x)}
        save_file(out, here / "logits.safetensors")
        for n in ("evaluated", "trained"):
            print(n, out[n].abs().max().item())


if __name__ == "__main__":
    main()
