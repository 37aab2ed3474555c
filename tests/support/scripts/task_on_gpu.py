"""A task whose model and data are on a device; an environment variable names the device."""

import os

import torch
from torch import nn

import outpace


def make():
    device = os.environ.get("OUTPACE_TEST_DEVICE", "cuda:0")
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    inputs = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    data = inputs.to(device), inputs.sum(dim=1).remainder(3).long().to(device)
    return outpace.Task(model, nn.functional.cross_entropy, data, data)
