"""The named models: as large as published, for small pictures, trained like any other."""

from __future__ import annotations

import pytest
import torch

from outpace.tasks import Cifar10, FashionMnist, Task
from outpace.tasks.models import MODELS, layer_sizes, make_model
from outpace.tasks.supervised import SupervisedWorkload

LARGE = {"resnet-50", "resnet-101", "resnet-110", "wide-resnet-16-4", "wide-resnet-28-10"}


def test_cifar_models_have_the_published_number_of_parameters():
    # He et al. 2016, table 6: 0.27, 0.85 and 1.7 million.
    # Zagoruyko and Komodakis 2016, section 3: 36.5.
    published = {
        "resnet-20": 269_722,
        "resnet-56": 853_018,
        "resnet-110": 1_727_962,
        "wide-resnet-28-10": 36_479_194,
    }
    assert {name: sum(layer_sizes(name)) for name in published} == published


@pytest.mark.parametrize(
    ("name", "published", "features", "stem_saves"),
    [
        # Stem of 64 channels: 7×7 on ImageNet, 3×3 here.
        ("resnet-50", 25_557_032, 2048, 3 * 64 * (49 - 9)),
        ("resnet-101", 44_549_160, 2048, 3 * 64 * (49 - 9)),
    ],
)
def test_what_was_made_for_imagenet_differs_in_stem_and_classes_only(
    name, published, features, stem_saves
):
    assert sum(layer_sizes(name, classes=10)) == published - stem_saves - 990 * (features + 1)
    assert sum(layer_sizes(name, classes=1000)) == published - stem_saves


@pytest.mark.parametrize(
    "name", ["resnet-20", "wide-resnet-16-4", pytest.param("resnet-50", marks=pytest.mark.slow)]
)
def test_every_parameter_gets_a_gradient_whatever_the_picture(name):
    torch.manual_seed(0)
    for channels, size in ((3, 32), (1, 28)):
        model = make_model(name, 7, channels)
        output = model(torch.randn(2, channels, size, size))
        assert output.shape == (2, 7)
        output.square().sum().backward()
        for key, parameter in model.named_parameters():
            assert torch.isfinite(parameter.grad).all(), key
            assert parameter.grad.any(), key


def test_a_shortcut_between_stages_has_no_parameters_and_keeps_what_it_sees():
    """Option A: with a residual of zero a block gives every other place, and no new channel."""
    torch.manual_seed(0)
    block = next(m for m in make_model("resnet-20", 10, 3) if getattr(m, "_stride", 1) == 2)
    torch.nn.init.zeros_(block.residual[-1].weight)
    seen = torch.rand(2, 16, 8, 8)
    given = block(seen)
    assert torch.equal(given[:, :16], seen[:, :, ::2, ::2])
    assert not given[:, 16:].any()


def workload(name: str, *, size: int = 28, batch_size: int = 4) -> SupervisedWorkload:
    torch.manual_seed(0)
    samples = torch.randn(16, 1, size, size), torch.arange(16) % 10
    task = Task(make_model(name, 10, 1), torch.nn.functional.cross_entropy, samples, samples)
    return SupervisedWorkload(task, workers=2, batch_size=batch_size, seed=0)


@pytest.mark.parametrize("name", sorted(set(MODELS) - LARGE))
def test_a_step_against_the_gradient_lowers_the_loss(name):
    work = workload(name)
    (before,) = work.initial_parameters()
    loss, (gradient,) = work.gradient([before], 0, 0)
    # The loss falls by about this much: by the gradient's square times the step.
    step = 0.01 * loss / gradient.square().sum()
    lower, _ = work.gradient([before - step * gradient], 0, 0)
    assert lower == pytest.approx(0.99 * loss, abs=0.008 * loss)


@pytest.mark.parametrize("kind", [Cifar10, FashionMnist])
def test_names_may_lack_their_dashes_and_slips_are_corrected(kind):
    kind("resnet56"), kind("resnet-56"), kind("wideresnet2810")
    with pytest.raises(ValueError, match=r"not 'resnet-57'. Did you mean 'resnet-56'\?"):
        kind("resnet-57")
    with pytest.raises(ValueError, match="Known: resnet-101, resnet-110"):
        kind("?")
