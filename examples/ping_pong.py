"""The ping-pong of the hybrid simulator's paper: two workers, a ball, virtual time.

python examples/ping_pong.py
"""

import outpace

ROUNDS = 3


class Ping(outpace.Worker):
    async def run(self) -> str:
        ball = "ball"
        for _ in range(ROUNDS):
            self.send("pong", ball, delay=0.1)  # occupies both for 0.1 s
            ball = await self.recv()
        return ball


class Pong(outpace.Worker):
    async def run(self) -> None:
        for _ in range(ROUNDS):
            ball = await self.recv()
            self.send("ping", ball, delay=0.1)


def main() -> None:
    simulator = outpace.Simulator(log=True)
    simulator.add_worker("ping", Ping)
    simulator.add_worker("pong", Pong)
    end = simulator.start()
    print(f"{2 * ROUNDS} messages of 0.1 s: {end} s of virtual time")


if __name__ == "__main__":
    main()
