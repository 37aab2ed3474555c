"""Checks the space of a sweep before anything is run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.experiment.sweeping.space import Dimension, all_of, combinations, in_words

_TRIES: Final = 64  # combinations with other values before a value is refused


def first_valid(
    make: Callable[[dict[str, Any]], Experiment], space: Sequence[Dimension]
) -> Experiment:
    """Return the experiment of a combination that makes a configuration.

    A combination of values may be invalid, which is a result of the sweep. A value that is
    invalid with all others, or with 64 of them, is a mistake.

    Args:
        make: returns the experiment of values by key, or raises ConfigError.

    Raises:
        ConfigError: naming each such value.
    """
    found: Experiment | None = None
    problems: dict[str, list[str]] = {}  # keys and values by error
    ends = 0
    for each in space:
        for value in each.ends:
            ends += 1
            error = ""
            for others in _others(each, space):
                try:
                    made = make({**others, each.key: value})
                except ConfigError as refused:
                    error = error or str(refused)
                else:
                    found, error = found or made, ""
                    break
            if error:
                problems.setdefault(error, []).append(f"--over {each.key}={in_words(value)}")
    if problems:
        alike = next(iter(problems.values()))
        if len(problems) == 1 and len(alike) == ends and not _is_about(space, problems):
            raise ConfigError(next(iter(problems)))
        lines = [f"{places[0]}: {error}" for error, places in problems.items()]
        raise ConfigError("\n".join(lines))
    assert found is not None
    return found


def _is_about(space: Sequence[Dimension], problems: Mapping[str, Any]) -> bool:
    """True if an error names a key of the space, or its first part."""
    return any(each.key.split(".")[0] in error for each in space for error in problems)


def _others(chosen: Dimension, space: Sequence[Dimension]) -> Iterator[Mapping[str, Any]]:
    """Yield values of the other keys: the first ones, then others, at most 64 in all."""
    others = [each for each in space if each is not chosen]
    if (count := combinations(others)) is not None and count <= _TRIES:
        yield from all_of(others)
        return
    generator = random.Random(0)
    first = {each.key: each.ends[0] for each in others}
    drawn = ({each.key: each.draw(generator) for each in others} for _ in itertools.count())
    yield from itertools.islice(itertools.chain([first], drawn), _TRIES)
