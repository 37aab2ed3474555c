"""Sentences about real runs of the recommended strategy, and the figure of the times."""

import dataclasses

from outpace.report.advice.page import _times
from outpace.report.advice.result import (
    AdviceResult,
    CandidateResult,
    ChangedCluster,
    OneRun,
    Promise,
)
from outpace.report.advice.words import rows, sentences
from outpace.report.words import SPACE
from outpace.support.estimates import NOTHING, Estimate
from outpace.support.targets import Target


def candidate(name, reached=True, missed=0):
    return CandidateResult(name, {}, reached, Estimate(1.0), None, True, 2, missed)


ADVICE = AdviceResult(
    outpace="1.0",
    status="complete",
    target=Target(loss=0.25),
    configuration="x.yaml",
    workers=4,
    strategy="asp",
    name="ASP",
    recommendation={},
    candidates=(candidate("BSP"), candidate("ASP")),
    distinguishable=True,
    best="ASP",
)


def said(**changes):
    found = sentences(dataclasses.replace(ADVICE, **changes))
    return "\n".join(found).replace(SPACE, " ")


def test_an_answer_so_far_says_how_many_candidates_were_not_tried_if_any():
    begin = "The study ended early (interrupted), and this is the answer so far. "
    end = "It needs about 20.0 s more at the pace of its runs."
    assert begin + end in said(status="interrupted", more_s=20.0)
    untried = dataclasses.replace(candidate("ASP"), runs=0)
    text = said(status="interrupted", more_s=20.0, candidates=(candidate("BSP"), untried))
    assert begin + "1 of 2 candidates have not been tried. " + end in text


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
    text = said(one_run=known)
    assert "One real run takes 7.00 to 13.0 s" in text
    assert "(9.00 to 11.0 s by the seeds alone, 8.00 to 12.0 s by the calibration alone)" in text
    assert "It is 1.80 to 2.20 times as fast as one of BSP, with 90 % probability" in text
    unknown = dataclasses.replace(
        known, error=None, prediction=NOTHING, no_error="no cluster file", evaluated_every_s=2.0
    )
    text = said(one_run=unknown)
    assert "without the error of the calibration: no cluster file" in text
    assert "every 2.00 s here" in text  # a fifth of the time to the target


def test_the_first_of_a_changed_cluster_may_be_so_by_chance():
    def first(name, low):
        speedup = Estimate(1.5, low, 2.0)
        return said(sensitivity=(ChangedCluster("twice the workers", name, speedup),))

    assert "With twice the workers, ASP is first, 1.5× [1.20, 2.00] as fast as BSP." in first(
        "ASP", 1.2
    )
    assert "as fast as BSP, which may be chance." in first("ASP", 0.9)
    assert "chance" not in first("BSP", 1.0)


def test_a_strategy_that_missed_the_target_is_drawn_as_an_arrow_and_comes_last():
    candidates = (candidate("BSP"), candidate("ASP", reached=False, missed=1))
    advice = dataclasses.replace(ADVICE, candidates=candidates)
    (figure,) = _times(advice)
    (view,) = figure.views.values()
    assert [trace["marker"]["symbol"] for trace in view.traces] == ["circle", "triangle-right"]
    assert [row[0] for row in rows(advice)] == ["", "BSP", "ASP"]
