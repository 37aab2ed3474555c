"""Forks processes that end in different ways, and one that does not end. `forks.py FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import outpace


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        work()  # and on through the script's last line, if it does not raise
    return pid


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fail() -> None:
    raise ValueError("a child's own error")


folder = Path(sys.argv[1])
model = torch.nn.Linear(2, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
parent = os.getpid()
model(torch.ones(1, 2)).sum().backward()
codes = [code_of(fork(work)) for work in (lambda: sys.exit(3), sys.exit, fail, optimizer.step)]
endless = fork(signal.pause)
done = fork(outpace.finish)
if os.getpid() == parent:
    codes.append(code_of(done))
    (folder / "codes").write_text(" ".join(map(str, codes)))
    (folder / "endless").write_text(str(endless))
    optimizer.step()
