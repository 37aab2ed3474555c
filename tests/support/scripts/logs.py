"""Logs in the way that its first argument says: `logs.py CASE`."""

from __future__ import annotations

import os
import sys
import time
from threading import Thread

import torch

import outpace

case = sys.argv[1]
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
if case == "before":
    outpace.log(loss=1.0)
model, optimizer = outpace.attach(model, optimizer)
rank = outpace.rank()


def step() -> torch.Tensor:
    loss = model(torch.ones(1, 2)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def forked() -> int:
    pid = os.fork()
    if pid == 0:
        outpace.log(loss=1.0)  # raises
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


match case:
    case "curve":  # ends by stop.target_accuracy
        for number in range(10_000):
            step()
            outpace.log(loss=torch.tensor(10.0 - number), **{f"lr/{rank}": 0.25})
            if rank == 0:
                outpace.log(accuracy=min(1.0, number / 10), test_loss=float("nan"))
    case "untimed":
        for _ in range(3):
            with outpace.untimed(), outpace.untimed():
                time.sleep(0.3)
            step()
        (outpace.output_dir() / "code").write_text(str(forked()))
        thread = Thread(target=lambda: [outpace.log(number=number) for number in range(600)])
        thread.start()
        thread.join()
        outpace.finish()
        outpace.log(accuracy=0.75)
    case "untimed step":
        with outpace.untimed():
            step()
    case "percent":
        outpace.log(accuracy=93.2)
