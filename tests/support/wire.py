"""A network whose messages are sent at given times."""

from collections import defaultdict

from outpace.kernel import Kernel
from outpace.simulation.network import network_of


class Wire:
    """Sends at given times; `log` and `arrivals` tell the rest."""

    def __init__(self, law, nodes, tie_seed=None, **options):
        self.kernel = Kernel(tie_seed=tie_seed)
        self.log = []
        self.network = network_of(law, self.kernel, self.log.append, **options)
        self.boxes = {node: self.network.add(node) for node in nodes}
        self.arrivals = defaultdict(list)  # receiver -> [(time, message)]
        self._count = 0

    def send_at(self, time, sender, receiver, size_bytes, message=None):
        """Send a message at `time` ns; its number if it is none in particular."""
        message = self._count if message is None else message
        self._count += 1
        self.kernel.call_at(
            time, lambda _: self.network.send(sender, receiver, message, size_bytes)
        )
        return message

    def run(self):
        async def receive(node):
            while True:
                message = await self.boxes[node].get()
                self.arrivals[node].append((self.kernel.now, message))

        async def last():
            await self.kernel.sleep(1e6)

        for node in self.boxes:
            self.kernel.spawn(receive(node), node, daemon=True)
        self.kernel.spawn(last())
        self.kernel.run()
        self.kernel.close()
        return self

    @property
    def delivered(self):
        """Time of delivery by message."""
        return {transfer.message: transfer.delivered for transfer in self.log}
