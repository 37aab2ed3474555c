"""`outpace examples`: the files with which a user of the package begins."""

from __future__ import annotations

import tomllib

from tests.support.command import outpace, refused
from tests.support.paths import EXAMPLES, ROOT


def test_examples_are_listed_and_copied_and_never_overwritten_unasked(tmp_path, capsys):
    names = {path.name for path in EXAMPLES.glob("[!._]*") if path.is_file()}
    assert outpace("examples") == 0
    *listed, how = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in listed} == names
    assert all(len(line.split()) > 2 for line in listed)
    assert how == "outpace examples DIR copies them to a folder"

    folder = tmp_path / "new" / "mine"
    assert outpace("examples", str(folder)) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: (EXAMPLES / name).read_bytes() for name in names
    }

    (folder / "demo.yaml").write_text("mine")
    (folder / "my_task.py").unlink()
    message = refused(capsys, "examples", str(folder))
    assert "demo.yaml" in message
    assert "my_task.py" not in message
    assert not (folder / "my_task.py").exists(), "all files are copied, or none"
    assert (folder / "demo.yaml").read_text() == "mine"
    assert outpace("examples", str(folder), "--force") == 0
    assert (folder / "demo.yaml").read_bytes() == (EXAMPLES / "demo.yaml").read_bytes()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert "cannot make the folder" in refused(capsys, "examples", str(tmp_path / "file"))


def test_the_wheel_has_the_examples_where_the_command_looks():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"]["force-include"] == {"examples": "outpace/examples"}
