import base64
import io
import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from tests.report.conftest import made_up, write_json
from tests.report.pages import assert_alone
from tests.support import helpers
from vlc_jax import report
from vlc_jax.report import __main__ as command
from vlc_jax.report import cases, read_workdir, to_html

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]> & &lt; \" ' \\ \u2028 \ud800",
    "{{ 7 * 7 }}",
)


def write_run(path, rows, **more):
    """A workdir with one benchmark, evaluated at step 5."""
    folder = path / "evals" / "b"
    (folder / "images").mkdir(parents=True, exist_ok=True)
    metrics = {"accuracy": {"value": 0.5, "count": len(rows)}}
    write_json(folder / "5.json", made_up(metrics=metrics, **more))
    helpers.write_rows(folder / "5.scores.jsonl", rows)
    return path


def row(case, scores, correct=True, captions=("a cat", "a dog"), **more):
    return {"id": case, "captions": captions, "scores": scores, "correct": correct} | more


def collected(*paths, benchmarks=()):
    return cases.collect([read_workdir.read(path) for path in paths], benchmarks)


def test_two_runs_stand_side_by_side_case_by_case(tmp_path):
    group = {"kind": "colour", "size": None}
    first = [row("x", [0.2, 0.1], group=group, tie=True), row("y", [0.3, 0.4], False)]
    second = [row("y", [0.5, 0.25]), row("x", [0.123456789, 0.4], False, rank=2)]
    runs = write_run(tmp_path / "a", first), write_run(tmp_path / "b", second)
    data = collected(*runs)
    assert data["runs"] == ["a", "b"]
    assert data["benchmarks"] == [["b", "accuracy", [[0.1, 0.4], [0.12346, 0.5]]]]
    assert (data["texts"], data["groups"]) == (["a cat", "a dog"], ["kind colour"])
    assert data["cases"] == [
        [0, "x", "x", [0], 0, [1, 1, 0, [0, 1], [0.2, 0.1]], [0, 0, 2, 0, [0.12346, 0.4]]],
        [0, "y", "y", [], 0, [0, 0, 0, [0, 1], [0.3, 0.4]], [1, 0, 0, 0, [0.5, 0.25]]],
    ]


def test_models_that_rank_other_captions_first_keep_their_own(tmp_path):
    first, second = row("x", [0.2, 0.1]), row("x", [0.3, 0.4], captions=["a cat", "an owl"])
    data = collected(write_run(tmp_path / "a", [first]), write_run(tmp_path / "b", [second]))
    (case,) = data["cases"]
    assert [data["texts"][k] for k in case[6][3]] == ["a cat", "an owl"]


def test_runs_with_other_cases_are_not_joined_and_rows_that_do_not_fit_are_counted(tmp_path):
    first = write_run(tmp_path / "a", [row("x", [0.2, 0.1]), row("y", [0.2]), row("x", [1, 2])])
    other = write_run(tmp_path / "b", [row("x", [0.3, 0.4])], version="2")
    data = collected(first, other)
    assert [case[6] for case in data["cases"]] == [0]
    assert data["notes"][0] == "b: not the same cases in both runs; a is shown"
    assert "2 rows of a are left out" in data["notes"][1]


def test_images_that_the_run_kept_are_in_the_page_large_ones_scaled_down(tmp_path):
    path = write_run(tmp_path / "a", [row(c, [0.2, 0.1], image=f"{c}.jpg") for c in "wxyz"])
    images = path / "evals" / "b" / "images"
    for name, side in (("w", 40), ("x", 900)):
        Image.new("RGB", (side, side // 2)).save(images / f"{name}_0.png")
    (images / "y_0.png").write_bytes(b"no image")
    data = collected(path)
    sizes = {}
    for index, (uri,) in data["images"].items():
        content = base64.b64decode(uri.partition(",")[2])
        sizes[index] = Image.open(io.BytesIO(content)).size
    assert sizes == {0: (40, 20), 1: (320, 160)}
    assert [case[2] for case in data["cases"]] == ["w.jpg", "x.jpg", "y.jpg", "z.jpg"]
    assert any(note.startswith("b, y: an image cannot be read") for note in data["notes"])


def test_page_is_well_formed_and_no_caption_leaves_its_script(tmp_path):
    rows = [row(text, [0.2, 0.1], captions=[text, "b"], group=text) for text in HOSTILE]
    path = write_run(tmp_path / "<i>a", rows)
    html = report.write_cases([path]).read_text("utf-8")
    parsed = assert_alone(html)
    assert parsed.links == []
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    assert "<i>" not in html
    assert "default-src 'none'" in html  # no request, whatever a caption holds
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html)
    shown = [text.replace("\ud800", "\ufffd") for text in HOSTILE]
    assert [case[1] for case in json.loads(data)["cases"]] == shown
    assert "innerHTML" not in to_html.read("cases.js")


def test_fifty_thousand_cases_of_two_runs_fit_into_30_megabytes(tmp_path):
    captions = ["the %d brown horses are eating the grass in front of the old white house"] * 2
    rows = [
        row(f"val2014/COCO_{n:012}", [0.1234567891 + n, 0.2], captions=[c % n for c in captions],
            image=f"COCO_{n:012}.jpg", group="relation")
        for n in range(1000)
    ]  # fmt: skip
    data = collected(*(write_run(tmp_path / name, rows) for name in "ab"))
    assert len(data["cases"]) == 1000
    assert 50 * len(cases.to_script(data).encode()) < 30e6  # a case takes what any other takes


FILTERS = """
const data = {runs: ["a", "b"], texts: ["a cat", "a dog"], groups: ["g", "h"], cases: [
  [0, "u", "", [0], 0, [1, 0, 0, [0, 1], [0.4, 0.1]], [1, 0, 0, 0, [0.4, 0.1]]],
  [0, "v", "", [1], 0, [0, 1, 0, [0, 1], [0.2, 0.2]], [1, 0, 0, 0, [0.2, 0.1]]],
  [1, "w", "", [], [2], [0, 0, 0, [0, 0, 1], [0.5, 0.3, 0.2]], 0],
  [1, "x", "", [], 0, [0, 0, 0, [1], [[0.1], [0.9]]], [0, 0, 0, [0], [[0.1], [0.9]]]],
]};
const all = {benchmark: null, group: null, outcome: 0, ties: false, search: "", order: null};
const ids = (filter) => filtered(data, {...all, ...filter}).map((k) => data.cases[k][1]).join("");
const outcomes = outcomesOf(data.runs).map(([label], k) => [label, ids({outcome: k})]);
console.log(JSON.stringify({
  ...Object.fromEntries(outcomes), benchmark: ids({benchmark: 1}), group: ids({group: 1}),
  ties: ids({ties: true}), search: ids({search: "CAT "}), id: ids({search: "U"}),
  order: ids({order: 0}), margin: [0, 1, 2, 3].map((k) => marginOf(data.cases[k], 0).toFixed(1)),
  chosen: partsOf(data.cases[1], 0)[0].map((o) => o.isChosen), shares: shares(data, [0, 1, 2, 3]),
  of_two: shares(data, [1, 2]),
}));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_filters_and_order_of_the_script():
    script = to_html.read("cases.js") + FILTERS
    run = subprocess.run(
        ["node", "-"], input=script, capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(run.stdout) == {
        "all": "uvwx", "the runs disagree": "v", "only a right": "", "only b right": "v",
        "both right": "u", "both wrong": "x", "a right": "u", "a wrong": "vwx", "b right": "uv",
        "b wrong": "x", "benchmark": "wx", "group": "v", "ties": "v", "search": "uvwx", "id": "u",
        "order": "xwvu", "margin": ["0.3", "0.0", "-0.1", "-0.8"], "chosen": [False, True],
        # case w is in one run only: it counts in neither share
        "shares": [[0, 2, [1, 2]], [1, 1, [0, 0]]], "of_two": [[0, 1, [0, 1]], [1, 0, [0, 0]]],
    }  # fmt: skip


def test_command_writes_the_page_or_refuses_in_one_line(tmp_path, capsys):
    runs = [str(write_run(tmp_path / name, [row("x", [0.2, 0.1])])) for name in "abc"]
    empty = write_run(tmp_path / "empty", [])
    assert command.main([*runs[:2], "--out", str(tmp_path / "out"), "--cases", "b"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'cases.html'}\n"
    for arguments, words in (
        ([*runs, "--cases"], "one run or two side by side; 3 are given"),
        ([runs[0], "--cases", "c"], "no benchmark 'c' has been evaluated; there are: b"),
        ([runs[0], "--published", "CLIP", "--cases"], "--cases has no --published"),
        ([str(empty), "--cases"], "no scores of single cases"),
    ):
        assert command.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert words in error
