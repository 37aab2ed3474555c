"""Momentum with gradients of older parameters: strategies that have them, and warnings."""

import warnings

import pytest

import outpace

CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 0.5]},
    "workers": 2,
    "compute": {"kind": "constant", "mean_s": 0.1},
    "stop": {"iterations": 2},
}
MOMENTUM = {"kind": "sgd", "lr": 0.01, "momentum": 0.9}
OWN = """
from outpace.sync import Bsp, Decision, Policy, Reason

class Own(Policy):
    def may_answer(self, pull, view):
        return Decision(None, Reason.UNBOUNDED, 0, 0)

class Waiting(Own):
    lockstep = True

def always(pull, view):
    return True
"""


def told(**changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = outpace.simulate({**CONFIG, **changes}).summary
    return [text for text in summary["warnings"] if "momentum" in text]


@pytest.mark.parametrize(
    ("sync", "is_stale"),
    [
        ({"kind": "asp"}, True),
        ({"kind": "ssp", "staleness": 2}, True),
        ({"kind": "hpsgd"}, True),
        ({"kind": "bsp"}, False),
        ({"kind": "partial-push", "quorum": 1}, False),
        ({"kind": "ssgd"}, False),
        ({"kind": "local-sgd", "every": 2}, False),
        ({"kind": "gossip"}, False),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_momentum_is_warned_of_where_gradients_are_stale(sync, is_stale):
    (text,) = told(sync=sync, optimizer=MOMENTUM) or [""]
    assert ("momentum 0.9" in text and "set momentum to 0" in text) == is_stale
    assert not told(sync=sync, optimizer={"kind": "sgd", "lr": 0.01})
    assert not told(sync=sync, optimizer={"kind": "adamw"})


@pytest.mark.parametrize(("name", "is_stale"), [("Own", True), ("Waiting", False)])
def test_a_strategy_of_the_users_has_stale_gradients_unless_it_waits(tmp_path, name, is_stale):
    (tmp_path / "own.py").write_text(OWN)
    sync = {"kind": "python", "target": f"{tmp_path}/own.py:{name}"}
    assert bool(told(sync=sync, optimizer=MOMENTUM)) == is_stale


def test_the_momentum_of_a_scripts_own_optimizer_counts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import outpace, torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)\n"
        "model, optimizer = outpace.attach(model, optimizer)\n"
        "model(torch.rand(1, 2)).sum().backward()\n"
        "optimizer.step()\n"
    )
    (text,) = told(task={"kind": "script", "path": str(script)}, sync={"kind": "hpsgd"}, stop={})
    assert "momentum 0.5" in text
