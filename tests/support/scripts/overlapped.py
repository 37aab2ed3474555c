"""A script for `overlap: backward`, with what must not be done to a gradient, by its argument."""

import argparse

import torch

import outpace

parser = argparse.ArgumentParser()
parser.add_argument("does", nargs="?", default="plain")
does = parser.parse_args().does

torch.manual_seed(3)
model = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(4)), torch.nn.Linear(6, 1))
# It has no gradient in odd iterations, so its part can be pushed only at the step then.
rare = model.rare = torch.nn.Parameter(torch.ones(5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
model, optimizer = outpace.attach(model, optimizer)
rank = outpace.rank()
draw = torch.Generator().manual_seed(10 + rank)
fails = [False]


def fail(gradient):
    if fails[0]:
        raise RuntimeError("out of memory")


model[0].weight.register_hook(fail)
for iteration in range(6):
    inputs = torch.randn(8, 6, generator=draw)
    optimizer.zero_grad()
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    if iteration % 2 == 0:
        loss = loss + rare.square().sum()
    if does == "half" and (rank, iteration) == (1, 2):
        fails[0] = True
        try:
            loss.backward()
        except RuntimeError:
            print("gives up")  # noqa: T201
            break
    loss.backward(retain_graph=does == "accumulates")
    if does == "accumulates":
        loss.backward()
    if does == "clips":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
outpace.finish()
