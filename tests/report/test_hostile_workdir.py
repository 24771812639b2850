"""A workdir of somebody else: whatever its files hold, the report has a note and no traceback."""

import contextlib
import json
import os

import numpy as np
import pytest

from tests.report import conftest
from tests.report.conftest import write_json, write_workdir
from tests.report.pages import Page
from vlc_jax import report
from vlc_jax.report import __main__ as command
from vlc_jax.report import patch_maps, read_workdir, summary

pytestmark = pytest.mark.usefixtures("blank_figures")

BENCHMARK = "scenes_swap"
FILES = ("config.json", "env.json", "metrics.jsonl", "events.jsonl", "DONE")
RESULT, SCORES = f"evals/{BENCHMARK}/512.json", f"evals/{BENCHMARK}/512.scores.jsonl"
PICTURE = f"evals/{BENCHMARK}/images/val_0_0.png"
DAMAGE = {
    "a list": b"[1]",
    "deep": b"[" * 100_000,
    "deeper than a page shows": b'{"a": ' * 400 + b"1" + b"}" * 400,
    "a number of 5,000 digits": b'{"step": ' + b"9" * 5_000 + b"}",
    "not UTF-8": b'{"\xff": 1}',
    "cut": b'{"metrics": {"accuracy": {"val',
}
HUGE, ODD = 10**30, {"a": [None, {"b": "\ud800"}]}
SHAPES = {
    "config.json": [
        {"steps": HUGE, "batch_size": HUGE, "evals": [1], "pretrain": [1]},
        {"steps": -1, "pretrain": 5, "\ud800": ODD},
    ],
    "env.json": [
        {"command": ODD, "commit": ["a"], "hardware": {"devices": [ODD]}, "versions": [1]},
        {"hardware": {"device_count": HUGE}, "parameters": {"total": HUGE}, "input": "x"},
        {"hardware": 3, "parameters": [], "command": ["a", 1]},
    ],
    "metrics.jsonl": [
        {"step": 3, "train/loss": HUGE, "perf/mfu": "\ud800", "time/elapsed_s": 1e300},
        {"step": HUGE, "train/loss": 1e308, "train/loss_over_log_batch": 5e-324},
        {"step": -(2**62), "train/loss": float("inf"), "time/elapsed_s": -1},
        {"step": 1, "train/loss": "high", "perf/mfu": None, "time/elapsed_s": float("nan")},
    ],
    "events.jsonl": [{"event": ODD, "time": ODD, "step": ODD}, {"event": "resume", "step": HUGE}],
    "DONE": [{"step": HUGE}, {"step": "\ud800"}],
    "FAILED": [{"step": "x"}],
    RESULT: [
        {"metrics": {"\ud800": {"value": 0.5}, "m": {"value": HUGE}}},
        {"metrics": {"m": 3}, "summary": 4},
        {"metrics": {"[/red]": {"value": 1e308, "low": -1e308, "high": 1e308, "unit": "rank"}}},
        {"metrics": {"m": {"value": 0.5, "chance": ODD, "count": HUGE, "unit": ODD}},
         "summary": ["m", ODD], "protocol": ODD, "options": ODD, "version": HUGE},
    ],
    SCORES: [
        {"id": "val/0", "captions": ["a \ud800", "b"], "scores": [0.1, 0.2], "group": ODD},
        {"id": "val/0", "captions": ["a", "b"], "scores": [0.1, 0.2], "positives": [2]},
        {"id": "val/0", "captions": ["a", "b"], "scores": [0.1, 0.2], "positives": 5},
        {"id": "val/0", "captions": ["a"], "scores": [[0.1], [0.2]]},
        {"id": "val/0", "captions": ["a", "b"], "scores": [HUGE, 0.2]},
        {"id": "n" * 5_000, "captions": ["a", "b"], "scores": [0.1, 0.2]},
        {"id": "a\0b", "captions": ["a", "b"], "scores": [0.1, 0.2]},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A run to compare with, not to be changed."""
    return write_workdir(tmp_path_factory.mktemp("runs") / "other", is_small=True)


@pytest.fixture
def path(make_workdir):
    """A finished run with one benchmark."""
    path = make_workdir()
    write_json(path / RESULT, conftest.result(BENCHMARK, 512))
    conftest.write_examples(path / "evals" / BENCHMARK, "triplet", 512)
    return path


@pytest.fixture
def assert_shown(path, other, capsys):
    """Writes its report, and with `everything` prints its tables and compares it; returns the page
    of the report."""

    def shown(everything=False):
        report.write(path)
        if everything:
            report.print_table(path)
            report.print_mixtures(path)
            page = report.write_comparison((other, path), path.parent)
            report.print_comparison((path, other))
            assert Page(page.read_text("utf-8")).crossed == []
            capsys.readouterr()
            with contextlib.suppress(report.NoCasesError):
                assert Page(report.write_cases([path]).read_text("utf-8")).crossed == []
        text = (path / "report.html").read_text("utf-8")
        assert Page(text).crossed == []
        return text

    return shown


@pytest.mark.parametrize("name", [*FILES, RESULT, SCORES])
@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_a_note(path, name, case, assert_shown):
    (path / name).write_bytes(DAMAGE[case] + b"\n")
    text = assert_shown()
    is_row = name.endswith(".jsonl") and case == "not UTF-8"  # read with a sign for the bytes
    assert is_row or name in text[text.index("Files that could not be used") :]


@pytest.mark.parametrize(
    ("name", "index"), [(name, k) for name, values in SHAPES.items() for k in range(len(values))]
)
def test_another_shape_does_no_harm(path, name, index, assert_shown):
    content = json.dumps(SHAPES[name][index])
    (path / name).write_text(content + "\n")
    assert_shown(everything=True)


def test_a_lone_surrogate_in_a_caption_is_shown_as_a_sign(path, assert_shown):
    (path / SCORES).write_text(json.dumps(SHAPES[SCORES][0]) + "\n")
    assert "a \ufffd" in assert_shown()


def test_folders_of_no_alpha_and_files_of_no_step_are_passed_over(path, assert_shown):
    for name in ("abc", "nan", "-1", "0.5", "1e999"):
        folder = path / "interpolate" / name / "evals" / BENCHMARK
        folder.mkdir(parents=True)
        (folder / "512.json").write_text((path / RESULT).read_text())
    for name in ("²", "9" * 200, "512x"):
        (path / "evals" / BENCHMARK / f"{name}.json").write_text("{}")
    assert list(read_workdir.mixtures(path)) == [0.5]
    assert_shown(everything=True)


@pytest.mark.parametrize("name", [*FILES, RESULT, SCORES, PICTURE])
def test_a_link_out_of_the_workdir_is_not_shown(path, name, assert_shown):
    secret = path.parent / "secret"
    secret.write_text(json.dumps({"step": 1, "event": "hunter2", "metrics": {"hunter2": {}}}))
    (path / name).unlink()
    (path / name).symlink_to(secret)
    text = assert_shown()
    assert "hunter2" not in text
    assert f"{name} is a link to elsewhere" in text


@pytest.mark.parametrize("name", [".report.html.writing", ".report.md.writing", "report.html"])
def test_a_link_is_not_written_through(path, name):
    elsewhere = path.parent / "elsewhere"
    elsewhere.write_text("precious")
    (path / name).symlink_to(elsewhere)
    report.write(path)
    assert elsewhere.read_text() == "precious"


def test_the_folder_of_figures_and_its_figures_are_no_links(path):
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    (path / "report").symlink_to(elsewhere)
    report.write(path)
    assert list(elsewhere.iterdir()) == []
    figure = next((path / "report").iterdir())
    figure.unlink()
    (elsewhere / "file").write_text("precious")
    figure.symlink_to(elsewhere / "file")
    report.write(path)
    assert (elsewhere / "file").read_text() == "precious"


def test_a_pipe_is_not_waited_for_and_a_huge_picture_is_left_out(path, assert_shown):
    (path / "env.json").unlink()
    os.mkfifo(path / "env.json")
    os.truncate(path / PICTURE, 10**12)  # a hole, which takes no room
    text = assert_shown()
    assert "env.json is no file" in text
    assert "val_0_0.png is too large" in text


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("content", ["[1]", '{"steps": ', "[" * 99_999], ids=range(3))
def test_a_damaged_config_is_said_first(make_workdir, content, is_done, capsys, caplog):
    path = make_workdir("running")
    (path / "config.json").write_text(content)
    if is_done:
        (path / "DONE").write_text('{"step": 3}')
    assert command.main([str(path)]) == 0
    assert capsys.readouterr().out.strip() == str(path / "report.html")
    (line,) = caplog.messages
    assert f"{path}: config.json " in line
    assert summary.status(read_workdir.read(path))["word"] == "Damaged"
    text = (path / "report.html").read_text()
    assert ">Running<" not in text
    assert ">Done<" not in text
    assert "repair or remove that file" in text


MAPS = {
    "step": np.array(5),
    "pixels": np.zeros((1, 24, 24, 3), np.uint8),
    "captions": np.array(["a", "b"]),
    "similarity": np.zeros((1, 2, 9, 4)),
    "tokens": np.array([["a", "b", "c", ""]] * 2),
    "is_word": np.zeros((2, 4), bool),
}
OTHER_MAPS = {
    "step": np.array([1, 2]),
    "pixels": np.zeros((2, 24, 24, 3), np.uint8),
    "captions": np.array("a"),
    "similarity": np.zeros(9),
    "tokens": np.array([["a"]]),
    "is_word": np.zeros((2, 3), bool),
}


def test_maps_of_shapes_that_fit_are_read(tmp_path):
    captions = np.array(["a", "b \ud800"])
    np.savez(tmp_path / "a.npz", **MAPS | {"captions": captions})
    assert patch_maps.read(tmp_path / "a.npz", 5).captions == ["a", "b \ufffd"]


@pytest.mark.parametrize("name", OTHER_MAPS)
def test_maps_of_other_shapes_are_a_value_error(tmp_path, name):
    np.savez(tmp_path / "a.npz", **MAPS | {name: OTHER_MAPS[name]})
    with pytest.raises(ValueError, match="holds"):
        patch_maps.read(tmp_path / "a.npz", 5)


def test_maps_that_are_none_are_a_value_error(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "b").write_bytes(b"")
    np.savez_compressed(tmp_path / "c.npz", similarity=np.zeros(30_000_000))
    for name in ("a.npy", "b", "c.npz"):
        with pytest.raises(ValueError, match="holds"):
            patch_maps.read(tmp_path / name, 5)
