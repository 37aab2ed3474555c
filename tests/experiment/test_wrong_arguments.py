"""What a user passes by mistake is named in one line."""

import pytest
from tests.support.command import outpace as command

import outpace
from outpace.errors import ConfigError, did_you_mean
from outpace.support.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: outpace.simulate(5), "give an Experiment, a mapping or the path of a YAML file"),
        (lambda: outpace.experiment_from(5, "data"), "data must be a mapping of keys, not 5"),
        (lambda: outpace.sampler(3), "dataset has no length, it is of type int"),
        (lambda: outpace.compare([5]), "a list is one of outpace.Variant, not 5"),
    ],
)
def test_an_argument_of_another_type_is_named(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: outpace.Stop(iterations=5.5), "iterations must be a whole number, not 5.5"),
        (lambda: outpace.Target(accuracy="high"), "accuracy must be a number, not 'high'"),
    ],
)
def test_a_value_of_another_type_is_named(make, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        make()


def test_no_codes_of_python_are_in_messages(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"task: {kind: \xe9}\n")
    with pytest.raises(ConfigError, match=r"it is not UTF-8 text \(byte 0xe9 at 13\)$"):
        read_yaml(path)
    full = OSError(28, "No space left on device", "out/model")
    assert str(outpace.RunError(f"cannot write: {full}")) == (
        "cannot write: No space left on device: 'out/model'"
    )


def test_of_no_known_names_nothing_is_listed():
    assert did_you_mean("x", []) == ""


@pytest.mark.parametrize("action", ["run", "simulate"])
def test_a_script_that_is_no_python_is_refused_with_its_place(tmp_path, capfd, action):
    script = tmp_path / "train.py"
    script.write_text("import outpace\ndef f(:\n")
    assert command(action, str(script), "--workers", "2", "--out", str(tmp_path / "out")) == 2
    said = capfd.readouterr()
    why = f"SyntaxError: invalid syntax ({script}, line 2)"
    assert said.err.strip().endswith(f"error: the script {script} is not valid Python: {why}")
