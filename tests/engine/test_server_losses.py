"""The rules of what happens after the loss of a server."""

import pytest

from outpace.engine.server_losses import MOST_LOSSES, OnServerLoss, ServerLosses
from outpace.errors import RunError

LOSS = RunError("server-0 was killed")


def losses(on_loss: OnServerLoss = "restart", *, can_restart=True, advises=False) -> ServerLosses:
    return ServerLosses(on_loss, can_restart=can_restart, advises_checkpoint=advises)


def test_a_run_begins_again_from_its_last_checkpoint():
    rules = losses()
    for checkpoint in range(1, 3 * MOST_LOSSES):
        rules.require_way_on(LOSS, checkpoint)


def test_a_run_that_is_lost_five_times_without_a_new_checkpoint_ends():
    rules = losses()
    for _ in range(MOST_LOSSES - 1):
        rules.require_way_on(LOSS, 1)
    for _ in range(MOST_LOSSES - 1):  # a new checkpoint begins the count anew
        rules.require_way_on(LOSS, 2)
    with pytest.raises(RunError, match="killed: the 5th loss since checkpoint 2; the run ends"):
        rules.require_way_on(LOSS, 2)


def test_without_a_checkpoint_the_error_says_what_to_set():
    with pytest.raises(RunError, match="killed; set checkpoint, for example"):
        losses(advises=True).require_way_on(LOSS, 0)
    with pytest.raises(RunError, match=r"^server-0 was killed$"):
        losses().require_way_on(LOSS, 0)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (losses("stop"), r"^server-0 was killed$"),
        (losses(can_restart=False), "were started elsewhere, .* outpace serve --resume: "),
    ],
)
def test_a_run_that_is_not_to_begin_again_ends_with_the_loss(rules, words):
    with pytest.raises(RunError, match=words):
        rules.require_way_on(LOSS, 1)
