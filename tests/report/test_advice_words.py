"""Sentences about real runs of the recommended strategy."""

import dataclasses

import pytest

from outpace.report.advice.page import _times
from outpace.report.advice.result import (
    AdviceResult,
    AfterTarget,
    CandidateResult,
    Effort,
    Leader,
    OneRun,
    Promise,
    advice_from,
)
from outpace.report.advice.words import sentences
from outpace.report.words import SPACE
from outpace.support.estimates import NOTHING, Estimate
from outpace.support.targets import Target


def candidate(name, **more):
    return CandidateResult(name, "", {}, True, Estimate(1.0), None, True, 2, 0, 1, **more)


ADVICE = AdviceResult(
    outpace="1.0",
    status="complete",
    target=Target(loss=0.25),
    configuration="x.yaml",
    workers=4,
    strategy="asp",
    name="ASP",
    recommendation={},
    candidates=(candidate("BSP"), candidate("ASP", after_target=AfterTarget(2, 1, 1.36))),
    effort=Effort(1, 1.0, 1.0, 1.0),
    distinguishable=True,
)


def said(**changes):
    found = sentences(dataclasses.replace(ADVICE, **changes))
    return [sentence.replace(SPACE, " ") for sentence in found]


@pytest.mark.parametrize(
    ("changes", "is_warned"),
    [
        ({}, True),
        ({"name": "BSP", "distinguishable": False}, False),
        ({"name": "BSP", "distinguishable": False, "ahead": Leader("ASP", 2.0, 1, True)}, True),
    ],
)
def test_a_strategy_that_left_the_target_again_is_warned_of(changes, is_warned):
    warnings = [each for each in said(**changes) if each.startswith("Warning: ASP left the target")]
    assert bool(warnings) == is_warned
    for warning in warnings:
        assert "in 1 of 2 simulated runs" in warning
        assert "a training loss of 1.36" in warning


def test_the_promise_names_its_parts_or_says_which_one_is_not_known():
    pair = Promise(seeds=Estimate(2.0, 1.8, 2.2), both=Estimate(2.0, 1.8, 2.2))
    known = OneRun(
        Estimate(10.0, 9.0, 11.0),
        Estimate(10.0, 8.0, 12.0),
        Estimate(10.0, 7.0, 13.0),
        0.1,
        speedup_over_bsp=pair,
        evaluated_every_s=0.5,
    )
    text = "\n".join(said(one_run=known))
    assert "from 7.00 s to 13.0 s" in text
    assert "from 9.00 s to 11.0 s by the spread over seeds" in text
    assert "from 8.00 s to 12.0 s by the error of the calibration" in text
    assert "from 1.80 to 2.20 times as fast as one of BSP" in text
    unknown = dataclasses.replace(
        known, prediction=NOTHING, no_error="no cluster file", evaluated_every_s=2.0
    )
    text = "\n".join(said(one_run=unknown))
    assert "without the prediction error (no cluster file)" in text
    assert "every 2.00 s here" in text  # a fifth of the time to the target


def test_a_strategy_that_missed_the_target_is_drawn_as_an_arrow():
    candidates = (candidate("BSP"), dataclasses.replace(candidate("ASP"), missed=1))
    section = _times(dataclasses.replace(ADVICE, candidates=candidates))
    (figure,) = section.content
    (view,) = figure.views.values()
    assert [trace["marker"]["symbol"] for trace in view.traces] == ["circle", "triangle-right"]


def test_an_advice_is_read_as_it_was_written():
    assert advice_from(ADVICE.plain()) == ADVICE
    with pytest.raises(ValueError, match="candidates"):
        advice_from({key: value for key, value in ADVICE.plain().items() if key != "candidates"})
