"""A script that ends as its argument says and notes the actions at its end: `ends.py CASE`."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

import outpace

case, rank = sys.argv[1], outpace.rank()
notes = outpace.output_dir() / "notes"


def note(word: object) -> None:
    with notes.open("a") as file:
        file.write(f"{word}\n")


note(os.getpid())
atexit.register(note, "atexit")
if case == "unattached":
    sys.exit()
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for context in (outpace.untimed, outpace.abortable):
    with contextlib.suppress(KeyError), context():
        raise KeyError  # afterwards, steps are allowed and nothing is abortable
try:
    for step in range(8):
        if (rank, step) == (1, 3) and case == "raises":
            raise ValueError("no luck")
        if (rank, step) == (1, 3) and case == "exits":
            sys.exit(0)
        if (rank, step) == (1, 3) and case == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
finally:
    note("finally")
    ThreadPoolExecutor(1).submit(note, "thread")  # whose thread continues to wait for work
