"""Sentences about real runs of the recommended strategy, and the figure of the times."""

import dataclasses

from outpace.report.advice.page import _times
from outpace.report.advice.result import AdviceResult, CandidateResult, OneRun
from outpace.report.advice.words import rows, sentences
from outpace.report.words import SPACE
from outpace.support.estimates import Estimate
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


def test_the_promise_says_what_one_run_takes_and_how_rarely_it_evaluates():
    known = OneRun(Estimate(10.0, 7.0, 13.0), Estimate(2.0, 1.8, 2.2), evaluated_every_s=2.0)
    text = said(one_run=known)
    assert "One real run reaches the target after 7.00 to 13.0 s, with 90 % probability." in text
    assert "It is 1.80 to 2.20 times as fast as a run of BSP, with 90 % probability." in text
    assert "every 2.00 s here" in text  # a fifth of the time to the target


def test_a_strategy_that_missed_the_target_is_drawn_as_an_arrow_and_comes_last():
    candidates = (candidate("BSP"), candidate("ASP", reached=False, missed=1))
    advice = dataclasses.replace(ADVICE, candidates=candidates)
    (figure,) = _times(advice)
    (view,) = figure.views.values()
    assert [trace["marker"]["symbol"] for trace in view.traces] == ["circle", "triangle-right"]
    assert [row[0] for row in rows(advice)] == ["", "BSP", "ASP"]
