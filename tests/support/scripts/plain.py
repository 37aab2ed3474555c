"""Trains one linear layer of 300 parameters without end."""

import torch

import outpace

model = torch.nn.Linear(300, 1, bias=False)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
while True:
    optimizer.zero_grad()
    with outpace.abortable():
        model(torch.randn(4, 300)).square().mean().backward()
    optimizer.step()
