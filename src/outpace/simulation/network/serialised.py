"""The network with `serialised` contention (Zhang et al., A Hybrid Simulator, section 3.2).

Nodes compute, send and receive independently. A node sends one message at a time and receives one
at a time. The nodes on one machine share its interface, and so take turns; another interface
carries messages between them. A transfer occupies both ends for bytes / bandwidth. Then follows the
latency, which occupies neither end.

A sender that becomes free looks through its queue from the front and takes the first message whose
receiver is free. It leaves a request with each busy receiver that it skips. A receiver that becomes
free serves the first request whose sender is free. So a receiver does O(1) work, and messages of
one sender to one receiver stay in order.

A message without bytes, such as a pull, takes its latency but no turn: during a large transfer
thousands of packets leave and arrive, and the few bytes of the message are sent between them. It
waits only for earlier messages from the same sender to the same receiver, as on a TCP connection.
So a pull stays behind its push: it leaves when the last of these messages has left. In the
simulator of the paper nothing else is possible, since its workers send no pulls: a server answers a
gradient with parameters.

If a receiver has the request of a path, the messages of this path are *parked* at the receiver, so
that the sender does not look at them again. When the receiver comes to the request, they go back to
their places in the sender's queue, which has the order of the calls of `send`.

A transfer is one event, its arrival. The time at which its two ends are free again is only stored;
an event (a *wake*) is created for that time only if a message waits for one of the ends. While a
wake is due the end counts as busy, so a message sent at exactly that time cannot overtake waiting
messages.
"""

from __future__ import annotations

from outpace.simulation.network.links import Nic, NodePath, Transfer
from outpace.simulation.network.network import Network


class SerialisedNetwork(Network):
    """A network in which each node sends one message and receives one message at a time."""

    def _queue(self, transfer: Transfer) -> None:
        link, now = transfer.link, transfer.requested
        if not transfer.size_bytes and transfer.duration is None:
            self._follow(transfer)
            return
        sender, receiver = link.source, link.target
        is_free = not (link.asked or sender.send_wake or sender.sending_until > now)
        if is_free and not receiver.receive_wake and receiver.receiving_until <= now:
            self._start(transfer)  # a free sender has no queue
            return
        sender.queued += 1
        link.unsent = transfer
        if link.asked:
            link.parked.append(transfer)
        else:
            sender.outbox.append(transfer)
        if is_free:
            self._send_next(sender)
        elif not sender.send_wake and sender.sending_until > now:
            self._wake_sender_later(sender)

    def _follow(self, transfer: Transfer) -> None:
        """Send a message that takes no turn, behind the earlier messages of its path."""
        link, now = transfer.link, transfer.requested
        before = link.unsent
        # Behind a message that waits for its turn: a pull must not overtake the push before it
        # (test_a_message_of_no_bytes_leaves_with_the_one_before_it_on_its_connection).
        # `_arrive_after` then handles both.
        if before is not None:
            while before.after is not None:
                before = before.after
            before.after = transfer
            return
        leaves = now if link.last is None else max(now, link.arrival - link.latency)
        transfer.started = leaves
        self._arrive_after(leaves - now + link.latency, transfer)

    def _abandon(self, link: NodePath) -> None:
        source = link.source
        kept = [each for each in source.outbox if each.link is not link]
        source.queued -= len(source.outbox) - len(kept) + len(link.parked)
        source.outbox.clear()
        source.outbox.extend(kept)
        link.parked.clear()

    def _send_next(self, sender: Nic) -> None:
        """Start what the free sender can send, until it is busy again. No wake is due."""
        sender.send_wake = False  # the wake may have been due now
        now, outbox = self._kernel.now, sender.outbox
        while outbox:
            transfer = outbox.popleft()
            link = transfer.link
            receiver = link.target
            if link.asked:
                link.parked.append(transfer)
            elif receiver.receiving_until <= now and not receiver.receive_wake:
                sender.queued -= 1
                self._start(transfer)
                if sender.sending_until > now:
                    return
            else:
                link.parked.append(transfer)
                link.asked = True
                receiver.waiting.append(link)
                if not receiver.receive_wake:
                    self._wake_receiver_later(receiver)

    def _start(self, transfer: Transfer) -> None:
        """Occupy both ends, which are free, for the transfer's duration."""
        link, kernel, size_bytes = transfer.link, self._kernel, transfer.size_bytes
        duration = transfer.duration
        if duration is None:
            # Most transfers have the same size.
            duration = link.duration if size_bytes == link.size else link.duration_of(size_bytes)
        now = transfer.started = kernel.now
        if duration:
            sender, receiver = link.source, link.target
            sender.sending_until = receiver.receiving_until = now + duration
            if receiver.waiting and not receiver.receive_wake:
                receiver.receive_wake = True
                kernel.call_at(now + duration, self._wake_receiver, receiver)
            if sender.queued and not sender.send_wake:
                sender.send_wake = True
                # late: see `_wake_sender_later`
                kernel.call_at(now + duration, self._send_next, sender, late=True)
        if link.unsent is transfer:
            link.unsent = None
        self._arrive_after(duration + link.latency, transfer)

    # -- ends that become free -----------------------------------------------------

    def _wake_sender_later(self, sender: Nic) -> None:
        sender.send_wake = True
        # Late: receivers that become free at the same time serve earlier requests first.
        self._kernel.call_at(sender.sending_until, self._send_next, sender, late=True)

    def _wake_receiver_later(self, receiver: Nic) -> None:
        receiver.receive_wake = True
        self._kernel.call_at(receiver.receiving_until, self._wake_receiver, receiver)

    def _wake_receiver(self, receiver: Nic) -> None:
        """Serve requests, oldest first, until the receiver is busy again."""
        receiver.receive_wake = False
        now = self._kernel.now
        while receiver.waiting and receiver.receiving_until <= now:
            link = receiver.waiting.popleft()
            link.asked = False
            sender, parked = link.source, link.parked
            if sender.sending_until > now or sender.send_wake:
                _unpark(link)
            elif parked:  # all other messages of this sender are parked as well
                sender.queued -= 1
                self._start(parked.pop(0))
                if parked:
                    sender.outbox.extend(parked)
                    parked.clear()
                    if not sender.send_wake:  # it is still free
                        self._send_next(sender)


def _unpark(link: NodePath) -> None:
    """Move the messages of a path back to their places in the sender's queue."""
    outbox, parked = link.source.outbox, link.parked
    before: list[Transfer] = []  # the part of the queue up to the last one of these messages
    for transfer in parked:
        while outbox and outbox[0].number < transfer.number:
            before.append(outbox.popleft())
        before.append(transfer)
    outbox.extendleft(reversed(before))
    parked.clear()
