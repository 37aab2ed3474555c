"""Task timing: how large the messages are, from a number or a list."""

from __future__ import annotations

import pytest

from outpace.blocks.slicing import even_slices
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.tasks import Timing


def configuration(**task: object) -> dict[str, object]:
    return {
        "task": {"kind": "timing", **task},
        "workers": 1,
        "sync": {"kind": "bsp"},
        "compute": {"kind": "constant", "mean_s": 1.0},
        "stop": {"iterations": 2},
    }


def layers_of(task: Timing) -> tuple[int, ...]:
    return task.workload(workers=1, batch_size=1, seed=0).layers


@pytest.mark.parametrize(
    ("task", "layers"),
    [
        (Timing(), (1_000_000,)),
        (Timing(parameters=7), (7,)),
        (Timing(layers=(3, 1, 2)), (3, 1, 2)),
    ],
)
def test_layers_are_kept_and_the_size_is_their_sum(task, layers):
    workload = task.workload(workers=1, batch_size=1, seed=0)
    assert workload.layers == layers
    assert workload.size == sum(layers)
    assert [block.nbytes for block in workload.initial_parameters()] == [4 * sum(layers)]
    workload.cut(even_slices(workload.size, 2))
    assert sum(block.nbytes for block in workload.initial_parameters()) == 4 * sum(layers)


def test_a_large_model_is_not_allocated():
    assert layers_of(Timing(layers=(10**14, 10**14))) == (10**14, 10**14)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"parameters": 5, "layers": [2, 3]}, "parameters must be left out where layers are given"),
        ({"parameters": 0}, "task.parameters must be at least 1, not 0"),
        ({"layers": []}, "task.layers must be a list of at least 1"),
        ({"layers": [4, 0]}, r"task.layers\[1\] must be at least 1, not 0"),
        ({"layers": [9e14, 2e14]}, "task.layers must be at most 1e15 parameters in all"),
        ({"layers": [4, "x"]}, r"task.layers\[1\] must be a whole number, not 'x'"),
        ({"layers": 5}, "task.layers must be a list, not 5"),
    ],
)
def test_what_makes_no_sense_is_said_with_its_key(task, words):
    with pytest.raises(ConfigError, match=words) as caught:
        experiment_from(configuration(**task), "test")
    assert len(str(caught.value).splitlines()) == 1
