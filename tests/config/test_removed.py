"""Keys and values that are gone are refused with what to use instead."""

from __future__ import annotations

from typing import Any

import pytest

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError

CONFIG: dict[str, Any] = {
    "task": {"kind": "timing", "layers": [8]},
    "workers": 2,
    "sync": {"kind": "asp"},
    "stop": {"iterations": 1},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"faults": {"recovery": {"server_alone": False}}},
            "faults.recovery.server_alone is gone: after the loss of a server all processes begin "
            "again from the last checkpoint: remove it",
        ),
        (
            {"on_server_loss": "restart-all"},
            "on_server_loss: restart-all is gone: use restart, which starts all processes again",
        ),
    ],
)
def test_what_is_gone_is_refused_by_one_line_that_names_what_to_use(changes, said):
    with pytest.raises(ConfigError) as refused:
        experiment_from({**CONFIG, **changes}, "the test")
    assert str(refused.value) == f"the test: {said}"
