"""Fixtures of tests of shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.real.net.memory_ends import Ends


@pytest.fixture
def given() -> Iterator[Ends]:
    ends = Ends(is_read=False)
    yield ends
    ends.close()


@pytest.fixture
def read() -> Iterator[Ends]:
    ends = Ends(is_read=True)
    yield ends
    ends.close()
