"""Worker 0 loads the optimizer state that it has just read, as accelerate does when it wraps an
optimizer. In between, worker 1 takes three steps. `reloads.py FOLDER`.

Every gradient is 1, so the momentum says how many steps are in it.
"""

import sys
import time
from pathlib import Path

import torch

import outpace


def wait_for(path):
    while not path.exists():
        time.sleep(0.005)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    model, optimizer = outpace.attach(model, optimizer)

    def step():
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    if outpace.rank() == 0:
        state = optimizer.state_dict()
        (folder / "read").touch()
        wait_for(folder / "stepped")
        optimizer.load_state_dict(state)
        step()
        torch.save(optimizer.state_dict(), folder / "state.pt")
    else:
        wait_for(folder / "read")
        for _ in range(3):
            step()
        (folder / "stepped").touch()
    outpace.finish()
