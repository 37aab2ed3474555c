"""A run continues with another number of servers or workers."""

import pytest
import torch
from tests.support.checkpoints import same, save, shard_state, shard_states

from outpace.blocks.block import Phantom
from outpace.blocks.slicing import even_slices
from outpace.errors import ConfigError
from outpace.record.checkpoints import Checkpoints
from outpace.sync.checkpoint.state import PendingIteration
from outpace.sync.checkpoint.workers import state_of_worker
from outpace.sync.policy import Scale

TOTAL = 17


def flat(seed):
    return torch.randn(TOTAL, generator=torch.Generator().manual_seed(seed))


def adam(part):
    """Return the state of the configuration's Adam on a slice."""
    return {0: {"step": torch.tensor(9.0), "exp_avg": flat(2)[part], "exp_avg_sq": flat(3)[part]}}


def of_script(part):
    """Return the state of a script's optimizer: parameters 0 (6 elements) and 2 (8) have state."""
    found = {}
    for number, start, size in ((0, 0, 6), (2, 9, 8)):
        low, high = max(start, part.start), min(start + size, part.stop)
        if low < high:
            average = flat(4)[low:high]
            found[number] = {"step": torch.tensor(9.0), "average": average, "is_warm": True}
    return found


def saved(run, number, servers, optimizer):
    """Save a checkpoint of this many servers whose parameters and optimizer are known."""
    states = [
        shard_state(shard=shard, parameters=flat(1)[part], optimizer=optimizer(part))
        for shard, part in enumerate(even_slices(TOTAL, servers))
    ]
    checkpoints = Checkpoints(run)
    save(checkpoints, number, states, layers=(6, 3, 8), of_script=optimizer is of_script)
    return checkpoints.newest()


@pytest.mark.parametrize("optimizer", [adam, of_script])
def test_parameters_and_optimizer_are_cut_anew_bit_by_bit(optimizer, tmp_path):
    checkpoint = saved(tmp_path, 1, 3, optimizer)
    for number, servers in enumerate((2, 5, 3), 2):
        slices = even_slices(TOTAL, servers)
        states = shard_states(checkpoint, slices, 2)
        for state, part in zip(states, slices, strict=True):
            assert same(state.parameters, flat(1)[part])
            assert same(state.optimizer, optimizer(part))
        named = {"layers": (6, 3, 8), "of_script": optimizer is of_script}
        save(Checkpoints(tmp_path), number, states, **named)
        checkpoint = Checkpoints(tmp_path).newest()


def test_the_state_of_a_parameter_that_one_shard_does_not_have_yet_is_left_out(tmp_path):
    first, second = even_slices(TOTAL, 2)
    states = [
        shard_state(shard=0, parameters=flat(1)[first], optimizer=adam(first)),
        shard_state(shard=1, parameters=flat(1)[second], optimizer={}),
    ]
    save(Checkpoints(tmp_path), 1, states)
    whole, upper = slice(0, TOTAL), slice(second.start, TOTAL)
    found = Checkpoints(tmp_path).newest()
    assert found.shard_state(0, [whole], 2).optimizer == {}
    assert same(found.shard_state(0, [first, upper], 2).optimizer, adam(first))


def pending(iteration, *workers):
    pushes = tuple((worker, 3) for worker in workers)
    return PendingIteration(iteration, Scale.MEAN, 2, len(workers), ((1, torch.ones(1)),), pushes)


def test_other_servers_begin_with_the_furthest_progress(tmp_path):
    states = [
        shard_state(shard=0, clock=5, version=8, watermarks=(4, 7), gone=(0,)),
        shard_state(shard=1, clock=6, version=7, watermarks=(6, 6), gone=(0, 1), pushes=14),
    ]
    save(Checkpoints(tmp_path), 1, states)
    (found,) = shard_states(Checkpoints(tmp_path).newest(), [slice(0, 6)], 2)
    assert (found.clock, found.version, found.watermarks) == (6, 8, (6, 7))
    assert (found.gone, found.pushes, found.pending) == ((0,), 14, ())


def test_other_workers_all_begin_at_the_clock(tmp_path):
    states = [shard_state(shard=0, clock=6, watermarks=(4, 7), gone=(0,), pushes=12)]
    save(Checkpoints(tmp_path), 1, states)
    (found,) = shard_states(Checkpoints(tmp_path).newest(), [slice(0, 3)], 3)
    assert (found.clock, found.watermarks, found.gone) == (6, (5, 5, 5), ())
    assert found.pushes == 18  # of 3 workers; with 2 workers, 12 were equally many iterations


def test_other_workers_of_one_model_have_all_of_it(tmp_path):
    # Behind the 3 parameters is a model buffer that workers average; the optimizer numbers tensors.
    optimizer = {0: {"exp_avg": torch.ones(2)}, 1: {"exp_avg": torch.ones(1)}}
    kept = {"parameters": torch.arange(4.0), "optimizer": optimizer}
    save(Checkpoints(tmp_path), 1, [shard_state(shard=0, **kept)], elements=3, layers=(2, 1))
    (found,) = shard_states(Checkpoints(tmp_path).newest(), [slice(0, 3)], 3)
    assert same(found.parameters, torch.arange(4.0))
    assert same(found.optimizer, optimizer)


def of_worker(worker, count, value, parameters=None):
    """Return the accumulated gradients of a worker: `value` for both parameters."""
    parts = ((0, torch.full((2,), value)),) if parameters is None and count else ()
    sums = PendingIteration(5, Scale.SUM, 4, count, parts, ((worker, 7),) * count)
    return state_of_worker(worker, 5, {}, (sums,), parameters)


@pytest.fixture
def accumulated(tmp_path):
    """Four workers without servers, which have accumulated 1, 2, 0 and 4 gradients."""
    own = tuple(of_worker(n, count, 2.0**n) for n, count in enumerate((1, 2, 0, 4)))
    common = shard_state(shard=0, watermarks=(4,) * 4, gone=())
    save(Checkpoints(tmp_path), 1, [common], own=own)
    return Checkpoints(tmp_path).newest()


@pytest.mark.parametrize(
    ("workers", "counts", "sums"),
    [
        (4, [1, 2, 0, 4], [1.0, 2.0, None, 8.0]),
        (1, [7], [11.0]),
        (2, [1, 6], [1.0, 10.0]),  # of workers 0 and 2; of 1 and 3
        (3, [5, 2, 0], [9.0, 2.0, None]),
        (6, [1, 2, 0, 4, 0, 0], [1.0, 2.0, None, 8.0, None, None]),
    ],
)
def test_accumulated_gradients_go_on_with_one_worker_each(accumulated, workers, counts, sums):
    states = [accumulated.own_state(worker, workers) for worker in range(workers)]
    found = [sum(each.count for each in state.pending) for state in states]
    assert found == counts
    values = [{n: part[0].item() for p in s.pending for n, part in p.parts} for s in states]
    assert [value.get(0) for value in values] == sums
    assert [sum(len(each.pushes) for each in state.pending) for state in states] == counts
    assert accumulated.updates_lost([slice(0, 3)], workers) == 0


def test_steps_in_the_model_of_one_worker_are_left_out_and_counted(tmp_path):
    own = tuple(of_worker(n, n + 1, 0.0, torch.full((3,), float(n))) for n in range(2))
    save(Checkpoints(tmp_path), 1, [shard_state(shard=0, gone=())], own=own)
    found = Checkpoints(tmp_path).newest()
    assert (found.updates_lost([slice(0, 3)], 2), found.updates_lost([slice(0, 3)], 3)) == (0, 3)
    assert same(found.own_state(1, 2).parameters, torch.ones(3))
    assert found.own_state(1, 3).parameters == Phantom(0)  # it begins with the common model
    assert found.own_state(1, 3).pending == ()


def test_what_is_lost_is_gaps_and_pending_sums_that_are_dropped(tmp_path):
    # Iterations 6 and 7 of worker 1 are only at one shard. Iteration 5 is pending, at the first
    # shard from both workers and at the second from one.
    states = [
        shard_state(shard=0, clock=5, watermarks=(5, 7), pending=(pending(5, 0, 1), pending(6, 1))),
        shard_state(shard=1, clock=5, watermarks=(5, 5), pending=(pending(5, 0),)),
    ]
    save(Checkpoints(tmp_path), 1, states)
    found = Checkpoints(tmp_path).newest()
    as_it_was = [slice(0, 3), slice(3, 6)]
    assert found.updates_lost(as_it_was, 2) == 2
    assert found.updates_lost([slice(0, 6)], 2) == 4
    assert found.updates_lost(as_it_was, 3) == 4


def test_parameters_without_values_are_divided_by_size(tmp_path):
    states = [shard_state(shard=0, parameters=Phantom(40)), shard_state(parameters=Phantom(40))]
    save(Checkpoints(tmp_path), 1, states)
    slices = [slice(0, 5), slice(5, 20)]
    found = shard_states(Checkpoints(tmp_path).newest(), slices, 2)
    assert [state.parameters for state in found] == [Phantom(20), Phantom(60)]


def test_a_task_of_another_size_is_refused(tmp_path):
    save(Checkpoints(tmp_path), 1, [shard_state(shard=0)])
    with pytest.raises(ConfigError, match="has 3 parameters, and the task has 4"):
        shard_states(Checkpoints(tmp_path).newest(), [slice(0, 4)], 2)


def test_workers_without_servers_are_kept_after_many_iterations(tmp_path):
    """Their records have no watermarks; earlier these counted as iteration -1."""
    last = 2_000_000
    own = tuple(state_of_worker(worker, last, {}) for worker in range(2))
    common = shard_state(shard=0, gone=(), clock=last, watermarks=(last - 1,) * 2)
    save(Checkpoints(tmp_path), 1, [common], own=own)
    assert Checkpoints(tmp_path).newest().own_state(1, 2).clock == last
