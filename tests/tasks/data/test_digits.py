"""The digits in the package are the digits of scikit-learn, in the same order."""

from __future__ import annotations

import hashlib

import torch

from outpace.tasks import DigitsMlp, HasData, load_digits
from outpace.tasks.data import digits

# Of scikit-learn's `load_digits()`, as bytes: images, then target.
IMAGES = "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"
LABELS = "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"


def test_the_pictures_and_their_order_are_scikit_learns():
    images, labels = load_digits()
    assert (images.shape, images.dtype) == ((1797, 8, 8), torch.uint8)
    assert (labels.shape, labels.dtype) == ((1797,), torch.int64)
    assert hashlib.sha256(images.numpy().tobytes()).hexdigest() == IMAGES
    assert hashlib.sha256(labels.byte().numpy().tobytes()).hexdigest() == LABELS


def test_a_data_set_that_was_loaded_is_not_read_again_for_a_workload(monkeypatch):
    task = DigitsMlp()
    assert isinstance(task, HasData), "a command loads it before it forks processes"
    task.load()

    def read_again():
        raise AssertionError("the digits are read again")

    monkeypatch.setattr(digits, "load_digits", read_again)
    workload = task.workload(2, 4, 0)
    assert workload.samples == 1797 - 360  # the others are test data
