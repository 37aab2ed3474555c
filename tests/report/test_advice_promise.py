"""Sentences about real runs of the recommended strategy."""

from outpace.report.advice.promise import leaving, one_run
from outpace.report.words import SPACE


def estimate(mean, low, high):
    return {"mean": mean, "low": low, "high": high}


NONE = estimate(None, None, None)


def said(one):
    return [sentence.replace(SPACE, " ") for sentence in one_run({"one_run": one})]


def test_a_strategy_that_left_the_target_again_is_warned_of():
    after = {"runs": 2, "left": 1, "worst": 1.36}
    candidates = [{"name": "ASP", "after_target": after}, {"name": "BSP"}]
    advice = {"name": "ASP", "candidates": candidates, "target": {"loss": 0.25}}
    (warning,) = leaving(advice)
    assert "ASP left the target again in 1 of 2 simulated runs" in warning
    assert "a training loss of 1.36" in warning
    assert leaving({**advice, "name": "BSP"}) == []
    assert leaving({**advice, "name": "BSP", "likely": {"name": "ASP"}}) == [warning]


def test_the_promise_names_its_parts_or_says_which_one_is_not_known():
    known = {
        "seeds": estimate(10.0, 9.0, 11.0),
        "prediction": estimate(10.0, 8.0, 12.0),
        "both": estimate(10.0, 7.0, 13.0),
        "no_error": "",
        "evaluated_every_s": 0.5,
    }
    pair = {"seeds": estimate(2.0, 1.8, 2.2), "prediction": NONE, "both": estimate(2.0, 1.8, 2.2)}
    run, factor = said({**known, "speedup_over_bsp": pair})
    assert "from 7.00 s to 13.0 s" in run
    assert "from 9.00 s to 11.0 s by the spread over seeds" in run
    assert "from 8.00 s to 12.0 s by the error of the calibration" in run
    assert "from 1.80 to 2.20 times as fast as one of BSP" in factor
    unknown = {**known, "prediction": NONE, "no_error": "no cluster file", "evaluated_every_s": 2.0}
    run, grid = said(unknown)
    assert "without the prediction error (no cluster file)" in run
    assert "every 2.00 s here" in grid  # a fifth of the time to the target
    assert said({"both": None, "no_error": ""}) == []
