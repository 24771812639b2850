import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from tests.report.conftest import write_json, write_workdir
from tests.report.pages import Page, assert_alone, figure_size
from vlc_jax import evaluators, report
from vlc_jax.input_pipeline.benchmarks import Benchmark
from vlc_jax.report import __main__ as command
from vlc_jax.report import page as pages
from vlc_jax.report import plot, read_workdir


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run with its report written; not to be changed."""
    path = write_workdir(tmp_path_factory.mktemp("runs") / "demo")
    assert report.write(path) == path / "report.html"
    return path


def text_of(path):
    return (path / "report.html").read_text(), (path / "report.md").read_text()


def test_html_is_well_formed_and_needs_no_other_file(done):
    page = assert_alone(text_of(done)[0])
    assert "script" not in {tag for tag, _ in page.tags}
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert images
    assert all(attributes.get("class") == "pixels" for attributes in images)  # small: no blur


def test_every_picture_of_the_markdown_exists(done):
    files = re.findall(r"!\[.*?\]\((.*?)\)", text_of(done)[1])
    assert len(files) > 20
    for file in files:
        if file.startswith("report/"):
            assert figure_size(done / file)
            continue
        with Image.open(done / file) as image:  # of an example
            image.verify()


def test_both_pages_tell_what_ran_and_what_came_out(done):
    for page in text_of(done):
        plain = page.replace("\\", "")
        for text in (
            "python -m vlc_jax.main --config configs/scenes/clip.py:quickstart",
            f"vlc-jax report {done} --cases",
            "4f0c1d2a9b7e5533d1c0ffee9c2b7a6d5e4f3a21",
            "632,833",
            "x86_64, 2 cores",
            "scenes-mini-v1-train-64000",
            "0.10.2",
            "Finished at step 512",
            "42.9–49.1",
            "image→text R@1",
            "bad_record",
            "SIGTERM",
            "“The | left.”",  # the answer of a model that writes
        ):
            assert text in plain


@pytest.mark.parametrize(
    ("commit", "version", "start"),
    [
        ("12ab-dirty", "0.2.0", "git checkout 12ab\npip install -r"),
        ("", "0.2.0", "pip install vlc_jax==0.2.0\nvlc-jax x"),
        ("", "not installed", "pip install -r requirements"),
    ],
)
def test_how_to_reproduce_names_the_commit_or_the_version(commit, version, start):
    env = {"command": "vlc-jax x", "commit": commit, "versions": {"vlc_jax": version}}
    _, commands, *_ = inspect.unwrap(pages._reproduction)(SimpleNamespace(env=env))
    assert commands.content.startswith(start)


def test_metrics_of_groups_are_there_but_folded_away(done):
    page, markdown = text_of(done)
    assert "accuracy: colour" in page[page.index("<details") :]
    assert "accuracy: colour" not in page[: page.index("<details")]
    assert "accuracy: colour" not in markdown


def test_examples_mark_the_correct_caption_and_the_models_mistake(done):
    page = text_of(done)[0]
    examples = re.findall(r'<div class="example (\w+)-answer">(.*?)</ol>', page, re.DOTALL)
    assert {kind for kind, _ in examples} == {"right", "wrong"}
    for kind, text in examples[:4]:  # choice: one image each
        options = re.findall(r'<li(?: class="(.*?)")?>.*?class="score">(.*?)<', text)
        classes, scores = zip(*((a.split(), float(b)) for a, b in options), strict=True)
        assert list(scores) == sorted(scores, reverse=True)
        assert classes[0] == (["correct", "chosen"] if kind == "right" else ["mistake", "chosen"])
        assert ("correct" in classes[1]) == (kind == "wrong")


def test_examples_of_triplets_are_right_if_both_correct_captions_beat_the_negative(done):
    page = text_of(done)[0]
    section = page[page.index("<h3><code>scenes_swap") : page.index("<h3><code>scenes_whatsup")]
    examples = re.findall(r'<div class="example (\w+)-answer">(.*?)</ol>', section, re.DOTALL)
    orders = set()
    for kind, text in examples:
        classes = [found.split() for found in re.findall(r'<li(?: class="(.*?)")?>', text)]
        order = tuple("correct" in found for found in classes)
        assert kind == ("right" if order == (True, True, False) else "wrong")
        assert ["chosen" in found for found in classes] == [True, False, False]
        assert ("mistake" in classes[0]) != order[0]
        orders.add(order)
    assert (True, False, True) in orders  # brittle: the preferred caption is correct, yet wrong


def test_writing_twice_gives_the_same_bytes(make_workdir):
    path = make_workdir()
    pages = []
    for _ in range(2):
        report.write(path)
        pages.append([file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()])
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("failed", "Exit code 10 at step 270: step 271 is not finite &lt;nan&gt;"),
        ("running", "Not finished, at step 270."),
        ("preempted", "the same command continues it"),
    ],
)
@pytest.mark.usefixtures("blank_figures")
def test_unfinished_runs_have_a_report_that_says_so(make_workdir, outcome, words):
    path = make_workdir(outcome.replace("preempted", "running"))
    if outcome == "preempted":
        lines = (path / "events.jsonl").read_text().splitlines(keepends=True)
        (path / "events.jsonl").write_text("".join(lines[:4]))
    report.write(path)
    page, markdown = text_of(path)
    assert words in page
    assert f">{outcome.title()}<" in page
    assert "No benchmark has been evaluated yet." in markdown
    assert "<nan>" not in page
    assert "<script>" not in page


@pytest.mark.parametrize("name", read_workdir.WORKDIR_FILES)
def test_any_one_file_of_a_run_is_enough(tmp_path, name):
    (tmp_path / name).mkdir() if name == "evals" else (tmp_path / name).write_text("{}\n")
    report.write(tmp_path)
    assert Page(text_of(tmp_path)[0]).crossed == []


def test_every_colour_can_be_read_on_light_and_dark_paper():
    css = (Path(report.__file__).parent / "report.css").read_text()
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
        for block in css.split("@media (prefers-color-scheme: dark)")[:2]
    )
    assert {name: light[name] for name in plot.THEME} == plot.THEME
    for theme in (light, dark):
        for name in ("ink", "muted", "blue", "orange", "red", "green"):
            for ground in ("paper", "card"):
                assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)


def contrast(first, second):
    """WCAG 2 contrast ratio of two #rrggbb colours."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_what_evaluators_write_is_what_the_table_reads(capsys, tmp_path):
    estimate = evaluators.Estimate(0.5, 8, 0.5, 0.2, 0.8, 0.125)
    result = evaluators.EvalResult({"accuracy": estimate, "accuracy/a": estimate}, [])
    benchmark = Benchmark("b", [], "1")
    name = "scenes_objects"
    written = evaluators.to_json("choice", benchmark, result, reader=name, step=3, options={})
    write_json(tmp_path / "evals" / name / "3.json", written)
    report.print_table([written])
    first = capsys.readouterr().out
    report.print_table(tmp_path)
    assert capsys.readouterr().out == first
    line = next(line for line in first.splitlines() if "scenes_objects" in line)
    assert line.split()[1:] == ["accuracy", "50.0", "20.0–80.0", "≈", "50.0", "8", "12.5"]


def test_command_refuses_in_one_line_with_exit_code_2(make_workdir, tmp_path, capsys):
    path = make_workdir("running")
    blocked, file = tmp_path / "blocked", tmp_path / "file"
    (blocked / "report.html").mkdir(parents=True)
    (blocked / "DONE").write_text("{}")
    file.write_text("")
    for arguments, message in (
        ([tmp_path / "gone"], "no such folder"),
        ([path, tmp_path / "gone"], "no such folder"),
        ([path, path], "given twice"),
        ([path, "--out", tmp_path], "--out belongs to several workdirs"),
        ([blocked], "cannot be written"),
        ([path, blocked, "--out", file], "cannot be written"),
    ):
        assert command.main([*map(str, arguments)]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""


def test_a_report_needs_neither_jax_nor_the_backend_of_a_notebook(tmp_path):
    (tmp_path / "events.jsonl").write_text("{}\n")
    write = f"vlc_jax.report.write(pathlib.Path({str(tmp_path)!r}))"
    code = f"import pathlib, sys, vlc_jax.report; {write}; sys.exit('jax' in sys.modules)"
    # a name that matplotlib refuses, as it does one of a package that is not installed
    env = {**os.environ, "MPLBACKEND": "of_a_notebook"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert (tmp_path / "report.html").exists()
