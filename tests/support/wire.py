"""A network whose messages are sent at given times."""

from collections import defaultdict

from outpace.blocks.block import Phantom
from outpace.kernel import Kernel
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Parcel
from outpace.sync.messages import Push, Reply


class Wire:
    """Sends at given times; `log` and `arrivals` have the results."""

    def __init__(self, law, nodes, tie_seed=None, **options):
        self.kernel = Kernel(tie_seed=tie_seed)
        self.log = []
        self.network = network_of(law, self.kernel, self.log.append, **options)
        self.nodes = {node: self.network.join(node) for node in nodes}
        self.arrivals = defaultdict(list)  # receiver -> [(time, message)]
        self._count = 0

    def send_at(self, time, sender, receiver, size_bytes, message=None):
        """Send a message at `time` ns; its number if it is none in particular."""
        message = self._count if message is None else message
        self._count += 1
        self.kernel.call_at(time, lambda _: self.send(sender, receiver, message, size_bytes))
        return message

    def send(self, sender, receiver, message, size_bytes, duration=None):
        """Send a message now; pushes and replies get a block of that size."""
        if isinstance(message, Push):
            message.gradient = Phantom(size_bytes)
        elif isinstance(message, Reply):
            message.parameters = Phantom(size_bytes)
        parcel = message if hasattr(message, "nbytes") else Parcel(message, size_bytes)
        self.network.send(self.nodes[sender], receiver, parcel, duration=duration)

    def run(self):
        async def receive(node):
            while True:
                message = await self.nodes[node].mailbox.get()
                self.arrivals[node].append((self.kernel.now, _content(message)))

        async def last():
            await self.kernel.sleep(1e6)

        for node in self.nodes:
            self.kernel.spawn(receive(node), node, daemon=True)
        self.kernel.spawn(last())
        self.kernel.run()
        self.kernel.close()
        return self

    @property
    def delivered(self):
        """Return the time of delivery of each message."""
        return {_content(transfer.message): transfer.delivered for transfer in self.log}


def _content(message):
    return message.content if isinstance(message, Parcel) else message
