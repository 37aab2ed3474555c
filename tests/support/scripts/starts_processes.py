"""Reads its data in processes that are started anew. `starts_processes.py METHOD FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset

import outpace


class Shared(IterableDataset):
    """A worker's share of some numbers, which a process of its DataLoader reads."""

    def __iter__(self):
        (outpace.output_dir() / "read").touch()
        for number in range(outpace.rank(), 8, outpace.world_size()):
            yield torch.tensor([float(number)])


if __name__ == "__main__":
    method, folder = sys.argv[1:]
    model = torch.nn.Linear(1, 1)
    model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), 0.01))
    seen = []
    for batch in DataLoader(Shared(), 2, num_workers=1, multiprocessing_context=method):
        seen += batch.flatten().tolist()
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    found = [*seen, (outpace.output_dir() / "read").exists()]
    Path(folder, str(outpace.rank())).write_text(repr(found))
