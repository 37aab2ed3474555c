"""All-reduces over torch.distributed, also if a worker is lost during one."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from functools import partial

import pytest
import torch
from torch.distributed import HashStore

from outpace.blocks.block import Pieces
from outpace.kernel import Kernel
from outpace.real.collective import reductions
from outpace.real.collective.buffers import Digests
from outpace.real.collective.group import Group, GroupSettings
from outpace.real.collective.reductions import Reductions
from outpace.real.net.clock import RealClock
from outpace.real.net.peer_messages import GroupBroken, TakePart
from outpace.real.net.waker import Waker

HOST = "127.0.0.1"


class Team:
    """Workers in one thread; each has its own thread for all-reduces.

    When a group breaks, or a worker is lost, the workers that are still `here` form the next group.
    """

    def __init__(self, workers: int, **how) -> None:
        clock = RealClock()
        self.kernel = Kernel(clock)
        self._group_settings = GroupSettings(HashStore(), HOST, "gloo")
        self._is_in_memory = reductions.Group is not Group  # their threads may wait forever
        self.here, self.generation = list(range(workers)), 0
        self._regroups = how.pop("regroups", True)
        self.ended, self.joined, self.broken = defaultdict(list), defaultdict(list), []
        like = how.pop("like", torch.empty(0))
        settings = {
            "elements": 3,
            "exact": 0,
            "wire": torch.uint8 if like is None else like.dtype,
            "least": lambda members: 0,
            **how,
        }
        self._new = lambda me: Reductions(
            self.kernel,
            clock,
            me,
            workers,
            like=like,
            tell=partial(self._hear, me),
            ended=self.ended[me].append,
            **settings,
        )
        self.workers = [self._new(me) for me in range(workers)]
        self._meet()

    def _meet(self) -> None:
        self.met = [
            self.workers[me].connect(self._group_settings, self.generation, self.here)
            for me in self.here
        ]

    def _hear(self, me: int, message) -> None:
        if isinstance(message, TakePart) and message.what == "all-reduce":
            self.joined[me].append(message.number)
        elif isinstance(message, GroupBroken) and message.generation == self.generation:
            self.broken.append(message.reason)
            if self._regroups and len(self.broken) < 2:
                self.regroup()

    def regroup(self) -> None:
        self.generation += 1
        self._meet()

    def lose(self, worker: int) -> None:
        """Lose a worker; the others notice it when the group breaks."""
        self.here.remove(worker)
        self.workers[worker].leave()

    def run(self, *programs) -> None:
        """Run these coroutines to their end."""
        for program in programs:
            self.kernel.spawn(program, program.__name__)
        self.kernel.call_at(self.kernel.now + 20 * 10**9, _too_long)
        self.kernel.run()

    def close(self) -> None:
        for worker in self.workers:
            worker.leave()
        if not self._is_in_memory:
            for worker in self.workers:
                worker.join(10.0)


def _too_long(_: object) -> None:
    pytest.fail("it takes for ever")


@pytest.fixture
def team():
    """Return a function that makes a team."""
    made = []

    def make(*arguments, **how) -> Team:
        made.append(Team(*arguments, **how))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_everybody_has_the_sum_and_knows_who_gave_what(team, dtype):
    three = team(3, like=torch.empty(0, dtype=dtype))
    found = {}

    async def work(me: int) -> None:
        for number in range(4):
            gives = (me, number) != (1, 2)
            value = torch.tensor([1.0, me, number], dtype=dtype) if gives else None
            part = three.workers[me].begin(value, 10 * me + 300)
            reduced = await part.result()
            assert reduced.total is not None  # while its buffer has it
            found[me, number] = reduced, part

    three.run(*(work(me) for me in range(3)))
    for (_, number), (reduced, part) in found.items():
        who = [0, 2] if number == 2 else [0, 1, 2]
        count = len(who)
        assert reduced.members == count
        assert reduced.weight == sum(10 * me + 300 for me in who)
        expected = torch.tensor([count, sum(who), count * number], dtype=dtype)
        assert torch.equal(reduced.total, expected)
        assert part.members == [0, 1, 2]
        assert part.joined <= part.began <= part.ended
    for number in range(4):
        began = {found[me, number][1].began for me in range(3)}
        assert began == {max(found[me, number][1].joined for me in range(3))}
    assert three.joined == {me: [0, 1, 2, 3] for me in range(3)}
    assert three.broken == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("who", [[1], [0, 2], [0, 1, 2]], ids=str)
def test_a_value_that_is_not_finite_is_left_out_and_its_worker_knows(team, bad, who):
    three = team(3, elements=5000)
    found = {}

    async def work(me: int) -> None:
        for number in range(2):
            value = torch.full((5000,), 10.0**me)
            if number == 0 and me in who:
                value[4999 if me else 0] = bad
            part = three.workers[me].begin(value, 1)
            reduced = await part.result()
            total = reduced.total.unique().tolist() if reduced.members else None
            found[me, number] = total, reduced.members, part.is_finite

    three.run(*(work(me) for me in range(3)))
    rest = [me for me in range(3) if me not in who]
    total = [sum(10.0**me for me in rest)] if rest else None
    for me in range(3):
        assert found[me, 0] == (total, len(rest), me not in who)
        assert found[me, 1] == ([111.0], 3, True)
    assert three.broken == []


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_one_of_three_leaves_while_the_others_are_in_an_all_reduce(team, gone):
    three = team(3)
    found = {}

    async def work(me: int) -> None:
        for number in range(3):
            if (me, number) == (gone, 1):
                three.lose(me)
                return
            part = three.workers[me].begin(torch.full((3,), 10.0**me), 1)
            found[me, number] = (await part.result()).total.tolist()[0], part.members

    three.run(*(work(me) for me in range(3)))
    rest = [me for me in range(3) if me != gone]
    for me in rest:
        assert found[me, 0] == (111, [0, 1, 2])
        assert found[me, 1] == found[me, 2] == (111 - 10**gone, rest)
        assert [part.number for part in three.ended[me]] == [0, 1, 2]
    assert three.broken


# -- groups of memory, in which an operation may fail for some of them ----------------------------


class Memory:
    """All groups. fails: number of operations that succeed, by (generation, worker)."""

    def __init__(self, fails) -> None:
        self.fails = fails
        self.operations = defaultdict(dict)
        self.changed = threading.Condition()

    def group(self, settings, generation, members, me):
        return _InMemory(self, generation, members, me)


class _InMemory:
    def __init__(self, memory, generation, members, me) -> None:
        self._memory, self._generation, self._members, self._me = memory, generation, members, me
        self._count = 0

    def all_reduce(self, pieces) -> None:
        for values in pieces:
            values.copy_(sum(self._meet(values).values()))

    def shares(self, memory, note) -> bool:
        return False

    def close(self) -> None:
        pass

    def broadcast(self, values, source) -> None:
        values.copy_(self._meet(values)[source])

    def _meet(self, values):
        """Return the values of all members; fails for some after the others have them."""
        memory, key = self._memory, (self._generation, self._count)
        self._count += 1
        with memory.changed:
            memory.operations[key][self._me] = values.clone()
            memory.changed.notify_all()
            memory.changed.wait_for(lambda: len(memory.operations[key]) == len(self._members))
        if self._count > memory.fails.get((self._generation, self._me), 99):
            raise RuntimeError("somebody is gone")
        return memory.operations[key]


# In a new group the first operation shows the progress of each worker. Then a worker with a result
# gives its values and its table to the others, or the values of all are added. The last operation
# fails.
BEFORE_TABLE = 2


@pytest.fixture
def memory(monkeypatch):
    """Only worker 0 has the result of the first all-reduce; then nothing fails."""
    found = Memory({(0, 1): BEFORE_TABLE, (0, 2): BEFORE_TABLE})
    monkeypatch.setattr(reductions, "Group", found.group)
    return found


class CountedWaker(Waker):
    """Counts its actions that have been run."""

    def __init__(self, clock: RealClock) -> None:
        super().__init__(clock)
        self.calls, self.runs = [], 0

    @property
    def waiting(self) -> int:
        return len(self.calls) - self.runs

    def call(self, action) -> None:
        super().call(action)
        self.calls.append(action)

    def run_next(self) -> None:
        super().run_next()
        self.runs += 1


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("has_begun", [False, True], ids=["it is over", "the next has begun"])
def test_who_has_a_result_gives_it_to_the_others_though_somebody_in_it_is_gone(team, has_begun):
    three = team(3, regroups=False)
    found = {}

    async def ahead() -> None:
        first, *_ = three.workers
        found[0, 0] = (await first.begin(torch.full((3,), 1.0), 1).result()).mean.tolist()
        following = first.begin(torch.full((3,), 1.0), 1) if has_begun else None
        three.here.remove(2)
        three.regroup()
        following = following or first.begin(torch.full((3,), 1.0), 1)
        found[0, 1] = (await following.result()).mean.tolist()

    async def behind(me: int) -> None:
        for number in range(2):
            part = three.workers[me].begin(torch.full((3,), 10.0**me), 1)
            found[me, number] = (await part.result()).mean.tolist()

    three.kernel.spawn(behind(2), "who is gone", daemon=True)
    three.run(ahead(), behind(1))
    assert found == {(0, 0): [37.0] * 3, (1, 0): [37.0] * 3, (0, 1): [5.5] * 3, (1, 1): [5.5] * 3}
    assert [part.members for part in three.ended[1]] == [[0, 1, 2], [0, 1]]


def test_a_result_that_came_from_who_is_gone_now_and_did_not_come_to_all_is_begun_anew(
    team, memory, monkeypatch
):
    memory.fails[1, 2] = BEFORE_TABLE  # worker 0 gives it to worker 1, then worker 0 is lost
    wakers = []
    monkeypatch.setattr(
        reductions, "Waker", lambda clock: wakers.append(CountedWaker(clock)) or wakers[-1]
    )
    three = team(3, regroups=False)
    found = {}

    async def work(me: int) -> None:
        part = three.workers[me].begin(torch.full((3,), 10.0**me), 1)
        found[me] = (await part.result()).total.tolist()
        if me == 0:
            three.regroup()
            deadline = time.monotonic() + 10
            # The communication thread of worker 1 has the result, and the training has not.
            while wakers[1].waiting < 2 and time.monotonic() < deadline:
                time.sleep(0.001)
            three.here.remove(0)
            three.regroup()

    three.run(*(work(me) for me in range(3)))
    assert found == {0: [111] * 3, 1: [110] * 3, 2: [110] * 3}


# -- construction --------------------------------------------------------------------------


def test_a_tail_has_a_dtype_of_its_own_and_need_not_be_finite(team):
    two = team(2, elements=4, exact=2, tail=torch.float64, like=torch.empty(0).bfloat16())
    found = []

    async def work(me: int) -> None:
        gradient = torch.tensor([256.0, me]).bfloat16()
        tail = torch.tensor([0.999, math.inf], dtype=torch.float64)
        digests = Digests(model=7 + me, settings=9)
        part = two.workers[me].begin(Pieces([gradient, tail]), 1, digests=digests)
        found.append(((await part.result()).total, part))

    two.run(work(0), work(1))
    for total, part in found:
        gradient, tail = total.parts
        assert gradient.tolist() == [512, 1]
        assert tail.tolist() == [2 * 0.999, math.inf]
        assert part.compared == {0: Digests(7, 9), 1: Digests(8, 9)}
        assert part.is_finite
