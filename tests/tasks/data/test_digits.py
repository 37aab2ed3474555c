"""The digits in the package are those that scikit-learn ships, in its order."""

from __future__ import annotations

import hashlib

import torch

from outpace.tasks import load_digits

# Of scikit-learn's `load_digits()`, as bytes: images, then target.
IMAGES = "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"
LABELS = "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"


def test_the_pictures_and_their_order_are_scikit_learns():
    images, labels = load_digits()
    assert (images.shape, images.dtype) == ((1797, 8, 8), torch.uint8)
    assert (labels.shape, labels.dtype) == ((1797,), torch.int64)
    assert hashlib.sha256(images.numpy().tobytes()).hexdigest() == IMAGES
    assert hashlib.sha256(labels.byte().numpy().tobytes()).hexdigest() == LABELS
