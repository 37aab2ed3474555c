"""One shard against a brute-force model, under anything that may come and much that may not.

Gradients are one-hot integers in float64, added up undivided with a rate of 1: sums are exact,
and a gradient that is lost or applied twice shows in the parameters.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.shard_reference import SIZE, Reference, UserPolicy

from outpace.blocks.block import Phantom
from outpace.errors import ProtocolError
from outpace.optim import Sgd
from outpace.sync import (
    Apply,
    Asp,
    Bsp,
    Buffer,
    Coin,
    CutOff,
    Draw,
    DropStragglers,
    Dsps,
    DynamicPssp,
    PartialPush,
    PspSampling,
    Pssp,
    Scale,
    Ssp,
)
from outpace.sync.conditions import Condition, Conditioned
from outpace.sync.messages import (
    Close,
    Leave,
    Lost,
    Pause,
    Pull,
    Push,
    Rejoin,
    Reply,
    SetPolicy,
)
from outpace.sync.observer import NO_WORKER, Outcome
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard

SUM = Scale.SUM
buffers = st.sampled_from(Buffer)
coins = st.sampled_from(Coin)
applies = st.sampled_from(Apply)
bounds = st.integers(0, 3)
POLICIES = {
    "bsp": st.builds(Bsp, buffer=buffers, apply=applies, scale=st.just(SUM)),
    "asp": st.builds(Asp, apply=applies, scale=st.just(SUM)),
    "ssp": st.builds(Ssp, bounds, buffer=buffers, apply=applies, scale=st.just(SUM)),
    "pssp": st.builds(
        Pssp,
        bounds,
        st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        buffer=buffers,
        coin=coins,
        draw=st.sampled_from(Draw),
        apply=applies,
        scale=st.just(SUM),
    ),
    "dynamic-pssp": st.builds(
        DynamicPssp,
        bounds,
        st.sampled_from([0.5, 1.0, "significance"]),
        buffer=buffers,
        coin=coins,
        apply=applies,
        scale=st.just(SUM),
    ),
    "dsps": st.builds(
        Dsps, bounds, st.integers(0, 4), buffer=buffers, apply=applies, scale=st.just(SUM)
    ),
    "drop-stragglers": st.builds(DropStragglers, st.integers(1, 4), scale=st.just(SUM)),
    "partial-push": st.builds(
        PartialPush,
        st.integers(1, 4),
        st.sampled_from([0.0, 3e-9, 9e-9]),
        scale=st.just(SUM),
    ),
    "psp-sampling": st.builds(
        PspSampling, st.integers(0, 3), bounds, apply=applies, scale=st.just(SUM)
    ),
    "cutoff": st.builds(CutOff, scale=st.just(SUM)),
    # The same conditions over a view and over the model.
    "condition": st.builds(
        lambda apply: (
            Conditioned(
                Asp(apply=apply, scale=SUM),
                Condition("pull", lambda pull, view: view.count(pull.iteration) >= 2),
                Condition("push", lambda view: view.reached >= 2),
            ),
            UserPolicy(
                lambda model, pull: model.count(pull.iteration) >= 2,
                lambda model: 0 if model.count(model.clock) >= 2 else math.inf,
                apply,
            ),
        ),
        applies,
    ),
    # A pull that the condition refuses goes into the buffer of the policy.
    "buffered condition": st.builds(
        lambda buffer, apply: (
            Conditioned(
                Pssp(1, 0.5, buffer=buffer, apply=apply, scale=SUM),
                Condition("pull", lambda pull, view: view.count(pull.iteration) >= 2),
            ),
            UserPolicy(
                lambda model, pull: model.count(pull.iteration) >= 2,
                lambda model: 0 if model.count(model.clock) >= len(model.live) else math.inf,
                apply,
                buffer,
            ),
        ),
        buffers,
        applies,
    ),
    "patient condition": st.builds(
        lambda apply: (
            Conditioned(
                Asp(apply=apply, scale=SUM),
                Condition("pull", lambda pull, view: view.clock > 0 or view.live == 1),
                Condition("push", lambda view: 5e-9 if view.reached else False),
            ),
            UserPolicy(
                lambda model, pull: model.clock > 0 or len(model.live) == 1,
                lambda model: 5 if model.count(model.clock) else math.inf,
                apply,
            ),
        ),
        applies,
    ),
}
any_policy = st.one_of(*POLICIES.values())
any_worker = st.integers(0, 10**6)
gaps = st.integers(0, 4)  # ns between messages
drawn = st.integers(0, 999).map(lambda number: number / 1000 + 1e-4)


class Watched:
    """A policy, and the view that it is shown."""

    def __init__(self, policy, views):
        self.policy, self._views = policy, views

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def may_answer(self, pull, view):
        self._views[:] = [view]
        decision = self.policy.may_answer(pull, view)
        assert decision.lead == pull.iteration - view.clock or self.policy.kind == "psp-sampling"
        return decision

    def patience_s(self, view):
        self._views[:] = [view]
        return self.policy.patience_s(view)


class Observer:
    """Keeps what the shard tells."""

    def __init__(self):
        self.settled, self.answered, self.abandoned, self.versions = [], [], [], []

    def push_settled(self, shard, push, arrived, settled, outcome, staleness):
        assert arrived <= settled
        self.settled.append((push.worker, push.iteration, outcome, staleness))

    def pull_answered(self, reply, arrived, decision, released_by):
        assert (decision.release_clock is None) == (released_by == NO_WORKER)
        self.answered.append((reply.worker, reply.iteration))

    def pull_abandoned(self, shard, pull, arrived, decision):
        self.abandoned.append((pull.worker, pull.iteration))

    def updated(self, version):
        self.versions.append(version)


def gradient_of(worker: int, iteration: int) -> list[float]:
    gradient = [0.0] * SIZE
    gradient[(worker + iteration) % SIZE] = 1.0 + worker + 7 * iteration
    return gradient


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def both(policy):
    """The policy of the shard, and the one of the reference model."""
    return policy if isinstance(policy, tuple) else (policy, policy)


class ShardMachine(RuleBasedStateMachine):
    """Any order of everything, one message at a time. Subclasses say with which policy it begins.

    Workers wait for the answer to a pull, or continue with up to three unanswered.
    """

    first = any_policy

    @initialize(workers=st.integers(1, 4), ahead=st.sampled_from([1, 3]), data=st.data())
    def begin(self, workers, ahead, data):
        self.most_unanswered = ahead
        real, model = both(data.draw(self.first))
        self.views, self.seen, self.now = [], Observer(), 0
        self.shard = self.new_shard(workers, Watched(real, self.views))
        self.model = Reference(workers, model, laggard=lambda: self.views[0].laggard())
        self.told = [0] * workers  # the iteration to continue with, as answers say
        self.read = [0] * workers  # versions
        self.to_pull = [False] * workers
        self.last_pull = {}

    def new_shard(self, workers, policy):
        block = parameter_block(tensor([0.0] * SIZE), Sgd(lr=1.0))
        return Shard(0, block, workers, policy, self.seen, self.seen.updated)

    # -- what every message does -----------------------------------------------------

    def arrive(self, gap, late=False):
        """Time passes until the next message; who is late looks at the clock only then."""
        until = self.now + gap
        while not late and self.model.deadline is not None and self.model.deadline <= until:
            self.wake()
        self.now = until

    def wake(self):
        self.now = max(self.now, self.model.deadline)
        self.expect(self.shard.on_time(self.now), self.model.look(self.now))

    def send(self, message, expected):
        """The model acts after the shard: it takes over the shard's choice of a laggard."""
        replies = self.shard.receive(message, self.now)
        self.expect(replies, expected())

    def expect(self, replies, expected):
        """Exactly these pulls are answered now, by what the shard is now."""
        found = {(reply.worker, reply.iteration): reply.held for reply in replies}
        assert len(found) == len(replies), "nobody is answered twice"
        assert found == expected
        for reply in replies:
            assert (reply.clock, reply.version) == (self.model.clock, self.model.version)
            self.read[reply.worker] = reply.version
            self.told[reply.worker] = max(self.told[reply.worker], reply.clock)

    def unanswered(self, worker):
        return sum(each.pull.worker == worker for each in self.model.waiting)

    def one_of(self, pick, workers):
        return workers[pick % len(workers)]

    @property
    def can_push(self):
        """Whose turn it is."""
        return [
            worker
            for worker in self.model.active
            if not self.to_pull[worker] and self.unanswered(worker) < self.most_unanswered
        ]

    # -- what workers do ---------------------------------------------------------------

    @precondition(lambda self: self.can_push)
    @rule(
        pick=any_worker,
        gap=gaps,
        late=st.booleans(),
        coin=drawn,
        what=st.sampled_from(["gradient"] * 4 + ["abstain", "skip", "no pull yet"]),
    )
    def push(self, pick, gap, late, coin, what):
        self.arrive(gap, late)
        if not self.can_push:
            return
        worker = self.one_of(pick, self.can_push)
        iteration = max(self.model.progress[worker] + 1, self.told[worker])
        iteration += 2 * (what == "skip")
        gradient = None if what == "abstain" else gradient_of(worker, iteration)
        version = self.read[worker]
        message = Push(worker, iteration, version, None if gradient is None else tensor(gradient))
        self.send(message, lambda: self.model.push(worker, iteration, version, gradient, self.now))
        self.to_pull[worker] = True
        if what != "no pull yet":
            self.ask(worker, coin)

    @precondition(lambda self: any(self.to_pull[worker] for worker in self.model.active))
    @rule(pick=any_worker, gap=gaps, coin=drawn)
    def pull(self, pick, gap, coin):
        self.arrive(gap)
        self.ask(self.one_of(pick, [n for n in self.model.active if self.to_pull[n]]), coin)

    def ask(self, worker, coin):
        self.to_pull[worker] = False
        pull = self.last_pull[worker] = Pull(worker, self.model.progress[worker], coin)
        self.send(pull, lambda: self.model.pull(pull, self.now))

    @precondition(lambda self: any(n in self.last_pull for n in self.model.active))
    @rule(pick=any_worker, gap=gaps)
    def pull_again(self, pick, gap):
        self.arrive(gap)
        worker = self.one_of(pick, [n for n in self.model.active if n in self.last_pull])
        pull = self.last_pull[worker]
        self.send(pull, lambda: self.model.pull(pull, self.now))

    @precondition(lambda self: any(self.model.progress[n] >= 0 for n in self.model.members))
    @rule(pick=any_worker, gap=gaps)
    def push_again(self, pick, gap):
        self.arrive(gap)
        worker = self.one_of(pick, [n for n in self.model.members if self.model.progress[n] >= 0])
        iteration = self.model.progress[worker]
        message = Push(worker, iteration, 0, tensor(gradient_of(worker, iteration)))
        self.send(message, lambda: self.model.push(worker, iteration, 0, None, self.now))

    @precondition(lambda self: self.model.members)
    @rule(pick=any_worker, gap=gaps, pauses=st.booleans())
    def pause_or_resume(self, pick, gap, pauses):
        self.arrive(gap)
        model = self.model
        workers = model.active if pauses else sorted(model.paused)
        if not workers:
            return
        worker = self.one_of(pick, workers)
        if pauses:
            self.send(Pause(worker), lambda: model.pause(worker, self.now))
        else:
            self.send(Pause(worker, over=True), lambda: model.resume(worker, self.now))

    @precondition(lambda self: self.model.members)
    @rule(pick=any_worker, gap=gaps, really=st.integers(0, 3))
    def leave(self, pick, gap, really):
        if really:
            return
        self.arrive(gap)
        worker = self.one_of(pick, self.model.members)
        self.send(Leave(worker), lambda: self.model.leave(worker, self.now))

    # -- what happens to it --------------------------------------------------------------

    @precondition(lambda self: self.model.is_cut_off)
    @rule(
        gap=gaps,
        ahead=st.sampled_from([0, 0, 0, 1]),
        named=st.sets(st.integers(0, 3)),
        by=st.integers(-1, 3),
    )
    def close(self, gap, ahead, named, by):
        """The scheduler, which may be ahead of what has come here, says who counts."""
        self.arrive(gap)
        model = self.model
        iteration = max([model.clock - 1, *(n for n in model.counting if n >= model.clock)])
        iteration += 1 + ahead
        workers = sorted(worker for worker in named if worker < model.workers)
        message = Close(iteration, workers, min(by, model.workers - 1))
        self.send(message, lambda: model.close(iteration, workers, self.now))

    @rule(gap=gaps, policy=any_policy)
    def follow_another_policy(self, gap, policy):
        self.arrive(gap)
        real, model = both(policy)
        message = SetPolicy(Watched(real, self.views))
        self.send(message, lambda: self.model.follow(model, self.now))

    @precondition(lambda self: self.model.deadline is not None)
    @rule(policy=st.one_of(POLICIES["partial-push"], POLICIES["patient condition"]))
    def follow_one_that_waits_anew(self, policy):
        self.follow_another_policy(1, policy)

    @rule(gap=gaps, really=st.integers(0, 3))
    def go_on_in_another_shard(self, gap, really):
        """The saved state of a shard is enough: another shard continues as it would have."""
        if really:
            return
        self.arrive(gap)
        for each in self.model.waiting:
            self.to_pull[each.pull.worker] = True
        state = self.shard.state()
        self.shard = self.new_shard(self.model.workers, self.shard.policy)
        self.shard.restore(state, self.now)
        self.views.clear()
        if self.model.clock <= max(self.model.progress):  # an iteration is open: look at once
            assert self.shard.next_deadline == self.now
            self.expect(self.shard.on_time(self.now), {})
        assert self.model.go_on_elsewhere(self.now) == {}

    @rule(pick=any_worker, gap=gaps, stays=st.booleans(), really=st.integers(0, 3))
    def lose(self, pick, gap, stays, really):
        """The process of a worker is gone."""
        if really:
            return
        self.arrive(gap)
        worker = pick % self.model.workers
        self.to_pull[worker] |= self.unanswered(worker) > 0
        self.send(Lost(worker, stays), lambda: self.model.lost(worker, stays, self.now))

    @rule(pick=any_worker, gap=gaps, beyond=st.integers(-1, 2), really=st.integers(0, 2))
    def rejoin(self, pick, gap, beyond, really):
        """A new process stands for a worker; other shards may have more of it, by `beyond`."""
        if really:
            return
        self.arrive(gap)
        worker, model = pick % self.model.workers, self.model
        first = max(0, max(model.progress[worker] + 1, model.clock) + beyond)
        self.send(Rejoin(worker, first), lambda: model.rejoin(worker, first, self.now))
        self.to_pull[worker] = model.progress[worker] >= 0

    @precondition(lambda self: self.model.deadline is not None)
    @rule()
    def wait(self):
        self.wake()

    @rule(gap=gaps)
    def look_at_the_clock_without_need(self, gap):
        self.arrive(gap)
        if self.model.deadline is not None and self.now < self.model.deadline:
            assert self.shard.on_time(self.now) == []

    @rule(
        pick=any_worker,
        what=st.sampled_from(
            [
                "older",
                "gone",
                "unknown",
                "negative",
                "far",
                "future",
                "past",
                "long",
                "single",
                "phantom",
                "pull negative",
                "pull unknown",
                "pull gone",
                "push paused",
                "pull paused",
                "pause again",
                "pause unknown",
                "resume again",
                "resume gone",
                "leave unknown",
                "leave gone",
                "rejoin unknown",
                "rejoin far",
                "close again",
                "close unknown",
                "a reply",
                "nonsense",
            ]
        ),
    )
    def refuse(self, pick, what):
        message = self.illegal(pick, what)
        if message is None:
            return
        before = self.visible()
        with pytest.raises(ProtocolError):
            self.shard.receive(message, self.now)
        assert self.visible() == before

    def illegal(self, pick, what):
        model = self.model
        worker = self.one_of(pick, model.members) if model.members else None
        gone = self.one_of(pick, sorted(model.gone)) if model.gone else None
        following = None if worker is None else model.progress[worker] + 1
        gradient = tensor(gradient_of(0, 5))
        match what:
            case "unknown":
                return Push(self.one_of(pick, [-1, model.workers]), 0, 0, gradient)
            case "pull unknown":
                return Pull(self.one_of(pick, [-1, model.workers]), 0)
            case "pause unknown":
                return Pause(model.workers)
            case "resume gone" if gone is not None:
                return Pause(gone, over=True)
            case "push paused" if model.paused:
                paused = self.one_of(pick, sorted(model.paused))
                return Push(paused, model.progress[paused] + 1, 0, gradient)
            case "pull paused" if model.paused:
                return Pull(self.one_of(pick, sorted(model.paused)), max(model.progress) + 1)
            case "pause again" if model.paused:
                return Pause(self.one_of(pick, sorted(model.paused)))
            case "resume again" if model.active:
                return Pause(self.one_of(pick, model.active), over=True)
            case "leave unknown":
                return Leave(model.workers)
            case "gone" if gone is not None:
                return Push(gone, model.progress[gone] + 1, 0, gradient)
            case "pull gone" if gone is not None:
                return Pull(gone, max(0, model.progress[gone]))
            case "rejoin unknown":
                return Rejoin(self.one_of(pick, [-1, model.workers]), 0)
            case "rejoin far":
                return Rejoin(pick % model.workers, max(model.progress) + 100_002)
            case "leave gone" if gone is not None:
                return Leave(gone)
            case "close again" if model.is_cut_off:
                closed = [*range(model.clock), *(n for n in model.counting if n >= model.clock)]
                return Close(self.one_of(pick, closed), [0]) if closed else None
            case "close again":  # it is not for others to say
                return Close(model.clock, [0])
            case "close unknown":
                return Close(model.clock, [self.one_of(pick, [-1, model.workers])])
            case "a reply":
                return Reply(0, 0, 0, 0, 0, 0)
            case "nonsense":
                return "push"
        if worker is None:
            return None
        match what:
            case "older" if model.progress[worker] > 0:
                return Push(worker, model.progress[worker] - 1, 0, gradient)
            case "negative":
                return Push(worker, -1 - (model.progress[worker] < 0), 0, gradient)
            case "far":
                return Push(worker, max(model.progress) + 100_001, 0, gradient)
            case "future":
                return Push(worker, following, model.version + 1, gradient)
            case "past":
                return Push(worker, following, -1, gradient)
            case "long":
                return Push(worker, following, 0, torch.zeros(SIZE + 1, dtype=torch.float64))
            case "single":
                return Push(worker, following, 0, gradient.to(torch.float32))
            case "phantom":
                return Push(worker, following, 0, Phantom(SIZE * 8))
            case "pull negative":
                return Pull(worker, -1)
        return None

    def visible(self):
        shard = self.shard
        return (
            shard.clock,
            shard.version,
            shard.live,
            shard.policy,
            shard.next_deadline,
            shard.read().tolist(),
            shard.describe_waiting(),
            len(self.seen.settled),
            len(self.seen.answered),
            [(v.slowest, v.fastest, v.reached, v.live, v.count(v.clock)) for v in self.views],
        )

    # -- what is always true --------------------------------------------------------------

    @invariant()
    def the_shard_is_where_its_definition_has_it(self):
        shard, model = self.shard, self.model
        assert shard.clock == model.clock
        assert shard.version == model.version
        assert shard.next_deadline == model.deadline
        assert shard.live == len(model.members)
        assert shard.read().tolist() == model.parameters
        assert self.seen.versions == list(range(1, model.version + 1))

    @invariant()
    def every_gradient_has_one_fate(self):
        assert self.seen.settled == self.model.settled
        shorter = [entry[:2] for entry in self.seen.settled if entry[2] is not Outcome.REPEATED]
        assert len(set(shorter)) == len(shorter)

    @invariant()
    def no_pull_is_forgotten(self):
        shard, model = self.shard, self.model
        for each in model.waiting:
            iteration, worker = each.pull.iteration, each.pull.worker
            assert f"worker {worker} (iteration {iteration}) until" in shard.describe_waiting()
            if model.policy.kind not in ("user", "psp-sampling"):
                assert model.clock <= iteration, "the clock passed a pull by"
        assert shard.describe_waiting().count("iteration") == len(model.waiting)

    @invariant()
    def the_view_tells_the_truth(self):
        model = self.model
        for view in self.views:
            progress = [model.progress[worker] for worker in model.live]
            if progress:
                assert view.slowest == min(progress)
            assert view.fastest == max(model.progress)
            assert view.clock == model.clock
            assert view.live == len(progress)
            assert view.workers == model.workers
            assert view.reached == model.count(model.clock)
            for iteration in range(-1, max(model.progress) + 2):
                assert view.count(iteration) == model.count(iteration)
            for worker in range(model.workers):
                assert view.progress(worker) == model.progress[worker]
                assert view.is_live(worker) == (worker in model.live)
                assert view.last_push(worker) == model.last_push[worker]
                assert view.step_time(worker) == model.step_time[worker]
                if view.weighs:
                    weight = model.significance.get(worker, 0.0)
                    assert math.isclose(view.significance(worker), weight)
            if model.laggards:
                assert view.laggard() in model.laggards

    def teardown(self):
        if not hasattr(self, "shard"):
            return
        self.shard.close(self.now)
        assert sorted(self.seen.settled) == sorted(self.model.settled + self.model.left_over())
        unanswered = self.model.abandoned + [each.pull for each in self.model.waiting]
        expected = sorted((pull.worker, pull.iteration) for pull in unanswered)
        assert sorted(self.seen.abandoned) == expected


@pytest.mark.stateful
@pytest.mark.parametrize("kind", POLICIES)
def test_the_shard_does_what_its_definition_says(kind):
    machine = type("Machine", (ShardMachine,), {"first": POLICIES[kind]})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50,
            stateful_step_count=40,
            phases=[Phase.generate],  # add Phase.shrink for a short example, in minutes
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
