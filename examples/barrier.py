"""Workers with different speeds meet at a barrier after every step: wait, notify and state.

python examples/barrier.py
"""

from __future__ import annotations

from collections.abc import Mapping

from outpace import Simulator, Worker

STEPS = 3


class Stepper(Worker):
    """Computes for `step_s` seconds, then waits for the slowest worker."""

    def __init__(self, step_s: float, workers: Mapping[str, Worker]) -> None:
        self.step_s, self.workers = step_s, workers

    async def run(self) -> list[float]:
        ends = []
        for _ in range(STEPS):
            await self.sleep(self.step_s)
            others = [worker for worker in self.workers.values() if worker is not self]
            if all(worker.state == "waiting" for worker in others):  # this one is the last
                for worker in others:
                    self.notify(worker.name)
            else:
                await self.wait()
            ends.append(self.now)
        return ends


def simulate(speeds: Mapping[str, float]) -> Simulator:
    """Run a worker for each name whose steps take this many seconds."""
    simulator = Simulator()
    for name, step_s in speeds.items():
        simulator.add_worker(name, Stepper, step_s, simulator.workers)
    simulator.start()
    return simulator


if __name__ == "__main__":
    done = simulate({"fast": 1.0, "slow": 2.5, "middle": 1.5})
    for name, ends in done.results.items():
        print(f"{name}: steps end at {', '.join(f'{end:g}' for end in ends)} s")
