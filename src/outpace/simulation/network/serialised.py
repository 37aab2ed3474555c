"""The network with `serialised` contention (Zhang et al., A Hybrid Simulator, section 3.2).

Nodes compute, send and receive independently. A node sends one message at a time and
receives one at a time; the nodes on one machine share its interface, and so take turns, and
have another one for messages among themselves. A transfer occupies
both ends for bytes / bandwidth. Latency comes after that and occupies neither.

A sender that becomes free looks through its queue from the front and takes the first message
whose receiver is free. It leaves a request with each busy receiver that it passes over. A
receiver that becomes free serves the first request whose sender is free. So a receiver does
O(1) work, and messages of one sender to one receiver stay in order. A message without bytes
waits its turn like any other but takes no time.

A transfer is one event, its arrival. That its ends are free again is only a time; an event
(a *wake*) is made of it where a message waits for it. While a wake is due the end counts as
busy, so a message sent at that very moment cannot overtake those that wait.
"""

from __future__ import annotations

from outpace.simulation.network.links import Nic, NodePath, Transfer
from outpace.simulation.network.network import Network
from outpace.support.units import Time


class SerialisedNetwork(Network):
    """A network in which each node sends one message and receives one message at a time."""

    def _queue(self, transfer: Transfer, duration: Time | None) -> None:
        link, now = transfer.link, transfer.requested
        if duration is None:
            if transfer.size_bytes == link.size:  # most are of one size
                duration = link.duration
            else:
                duration = link.duration_of(transfer.size_bytes) if transfer.size_bytes else 0
        transfer.duration = duration
        source = link.source
        if source.send_wake:
            source.outbox.append(transfer)
        elif now < source.sending_until:
            source.outbox.append(transfer)
            self._wake_sender_later(source)
        elif now < link.target.receiving_until or link.target.receive_wake:
            source.outbox.append(transfer)
            if not link.asked:
                self._ask(link)
        else:
            self._start(transfer)

    def _abandon(self, link: NodePath) -> None:
        outbox = link.source.outbox
        for transfer in [each for each in outbox if each.link is link]:
            outbox.remove(transfer)

    def _start(self, transfer: Transfer) -> None:
        """Occupy both ends, which are free, for the transfer's duration."""
        link, now, duration = transfer.link, self._kernel.now, transfer.duration
        transfer.started = now
        if duration:
            sender, receiver = link.source, link.target
            sender.sending_until = receiver.receiving_until = now + duration
            if receiver.waiting and not receiver.receive_wake:
                self._wake_receiver_later(receiver)
            if sender.outbox and not sender.send_wake:
                self._wake_sender_later(sender)
        self._arrive_at(now + duration + link.latency, transfer)

    def _wake_sender_later(self, sender: Nic) -> None:
        sender.send_wake = True
        # Late: receivers that become free at the same time serve earlier requests first.
        self._kernel.call_at(sender.sending_until, self._wake_sender, sender, late=True)

    def _wake_receiver_later(self, receiver: Nic) -> None:
        receiver.receive_wake = True
        self._kernel.call_at(receiver.receiving_until, self._wake_receiver, receiver)

    def _wake_sender(self, sender: Nic) -> None:
        sender.send_wake = False
        self._send_next(sender)

    def _wake_receiver(self, receiver: Nic) -> None:
        """Serve requests, oldest first, until the receiver is busy again."""
        receiver.receive_wake = False
        now = self._kernel.now
        while receiver.waiting and receiver.receiving_until <= now:
            link = receiver.waiting.popleft()
            link.asked = False
            sender = link.source
            if sender.sending_until <= now and not sender.send_wake:
                self._send_next(sender)

    def _send_next(self, sender: Nic) -> None:
        """Start what the free sender can send, until it is busy again."""
        now, outbox = self._kernel.now, sender.outbox
        while sender.sending_until <= now:
            for place, transfer in enumerate(outbox):
                link = transfer.link
                if link.asked:
                    continue
                receiver = link.target
                if receiver.receiving_until <= now and not receiver.receive_wake:
                    del outbox[place]
                    self._start(transfer)
                    break
                self._ask(link)
            else:
                return

    def _ask(self, link: NodePath) -> None:
        """Leave a request with the link's receiver, which is busy."""
        link.asked = True
        receiver = link.target
        receiver.waiting.append(link)
        if not receiver.receive_wake:
            self._wake_receiver_later(receiver)
