"""The command that shows captions beside their hard texts."""

import json
import pickle
import random

import numpy as np
import pytest

from vlc_jax.input_pipeline.commands import hard_texts as command
from vlc_jax.input_pipeline.commands import parts
from vlc_jax.input_pipeline.hard_texts import from_table
from vlc_jax.input_pipeline.sources import make_source

COLOURS, THINGS = ("red", "green", "blue", "grey", "pink"), ("cup", "car", "dog", "hat", "box")
MARK = " ."


@pytest.fixture
def table(tmp_path):
    captions = ["the red cat and the hat", "two men wearing hats", "grass", "grass"]
    path = tmp_path / "captions.jsonl"
    path.write_text("".join(json.dumps({"caption": text}) + "\n" for text in captions))
    return str(path)


def run(capsys, *arguments):
    code = command.main(arguments)
    out, errors = capsys.readouterr()
    return code, out, errors


def test_captions_stand_beside_their_texts_with_counts(capsys, table):
    code, out, _ = run(capsys, "--table", table, "--kinds", "replace,swap", "--show", "1")
    lines = out.splitlines()
    assert code == 0
    assert lines[:2] == [
        "the red cat and the hat",
        "  replace (positive): the crimson cat and the hat",
    ]
    assert lines[2].startswith("  swap (positive): the hat and the red cat")
    assert "two men wearing hats" not in out
    assert "of 4 captions:" in lines
    few = "blind not measured, of fewer than 50 pairs"
    none = "WARNING: most have none, and take no part in the loss"
    assert f"  swap: 1 have a text; {none}; {few}" in lines
    assert any(line.startswith(f"  replace: 2 have a text; {few}; new words: ") for line in lines)


def test_the_clean_mode_is_shown_unless_the_authors_is_asked_for(capsys, tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(["sportswear on a table"] * 40))
    texts = {}
    for mode in ("clean", "authors"):
        made = run(capsys, "--table", str(path), "--kinds", "svlc_rule", "--mode", mode)[1]
        texts[mode] = {line for line in made.splitlines() if line.startswith("  svlc_rule (")}
    assert texts["clean"] != texts["authors"]
    # "on" is inside no other word of the caption but the clean mode replaces whole words alone
    assert all("sportswear" in line for line in texts["clean"])


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """A table of 300 captions, two of each image, a file of texts, a third of which end with a mark
    that no caption has, and the words of the command that balances them."""
    folder, draw = tmp_path_factory.mktemp("balanced"), random.Random(0)
    captions, texts = [], []
    for number in range(300):
        (a, b), (x, y) = draw.sample(COLOURS, 2), draw.sample(THINGS, 2)
        caption = f"a {a} {x} and a {b} {y} {number}"
        captions.append({"image": f"{number // 2}.png", "title": caption})
        texts.append(
            {
                "caption": caption,
                "negatives": [f"a {b} {x} and a {a} {y} {number}" + MARK * (number % 3 == 0)],
            }
        )
    for name, rows in (("captions", captions), ("texts", texts)):
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    option = f'from_table={{"path": "{folder}/texts.jsonl"}}'
    words = ["--table", f"{folder}/captions.jsonl", "--column", "title", "--option", option]
    words += ["--kinds", "from_table", "--show", "1", "--balance", ".6"]
    assert command.main([*words, "--out", f"{folder}/out.jsonl"]) == 0
    return folder, words


def test_balanced_texts_are_a_table_that_training_reads_in_two_ways(balanced):
    folder, _ = balanced
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["caption"] for row in rows] == [row["title"] for row in rows]
    kept = [row["negatives"] != [] for row in rows]
    assert all(row["negative_kinds"] == ["from_table"] * len(row["negatives"]) for row in rows)
    marked = [row["negatives"][0].endswith(" .") for row in rows if row["negatives"]]
    assert sum(marked) < 60
    assert 150 < sum(kept) < 300
    generator = from_table.FromTable("negatives", str(folder / "out.jsonl"))
    for row in rows:
        assert generator(row["caption"], np.random.default_rng(0), 9) == row["negatives"]
    for row in rows:
        (folder / row["image"]).touch()
    columns = {"negatives_column": "negatives", "negative_kinds_column": "negative_kinds"}
    source = make_source("records", "all", path=folder / "out.jsonl", **columns)
    # the rows of an image are one record
    stored = [texts for number in range(150) for texts in source[number].negatives]
    assert stored == [row["negatives"] for row in rows]


def test_a_balance_that_was_stopped_continues_and_is_refused_for_other_texts(balanced, capsys):
    folder, words = balanced
    whole, log = (folder / "out.jsonl").read_bytes(), folder / "out.jsonl.rounds.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:2]))
    (folder / "out.jsonl").unlink()
    code, out, _ = run(capsys, *words, "--out", f"{folder}/out.jsonl")
    assert code == 0
    assert (folder / "out.jsonl").read_bytes() == whole
    assert log.read_text() == "".join(lines)
    kept = sum(json.loads(line)["negatives"] != [] for line in whole.splitlines())
    assert f"  from_table: keeps {kept} of 300 ({kept / 3:.1f} %); blind " in out
    code, _, errors = run(capsys, *words, "--seed", "1", "--out", f"{folder}/out.jsonl")
    assert code == 2
    assert "is of other captions, kinds, options, seed or --balance; remove it" in errors


def test_candidates_of_workers_are_those_of_one_process_and_none_are_made_twice(
    balanced, tmp_path, capsys, monkeypatch
):
    folder, words = balanced
    words = [*words, "--out", str(tmp_path / "out.jsonl"), "--runner", "DirectRunner"]
    monkeypatch.setattr(command, "SIZE", 70)
    finished = []

    def killed(work, report, advance):
        pickle.loads(pickle.dumps(work)).write(3)
        finished.append(work.path(3).stat().st_ino)
        raise KeyboardInterrupt

    def workers(work, report, advance):
        for number in reversed(range(work.count)):
            pickle.loads(pickle.dumps(work)).write(number)
        finished.append(work.path(3).stat().st_ino)

    monkeypatch.setattr(parts, "engine", lambda *_: killed)
    with pytest.raises(KeyboardInterrupt):
        command.main(words)
    monkeypatch.setattr(parts, "engine", lambda *_: workers)
    assert run(capsys, *words, "--", "--flag=1")[0] == 0
    assert finished[0] == finished[1]
    for name in ("out.jsonl", "out.jsonl.rounds.jsonl"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert not (tmp_path / "out.jsonl.parts").exists()
    monkeypatch.undo()
    code, _, errors = run(capsys, *words[:-2], "--", "--flag=1")
    assert code == 2
    assert "--flag=1 behind -- is a flag of a runner; name it in --runner" in errors


@pytest.mark.parametrize("name", ["captions.jsonl", "mine.jsonl"])
def test_a_file_that_the_command_did_not_write_is_not_replaced(capsys, table, tmp_path, name):
    (tmp_path / "mine.jsonl").write_text("precious\n")
    before = (tmp_path / name).read_text()
    words = ("--table", table, "--kinds", "replace", "--balance", ".6")
    code, _, errors = run(capsys, *words, "--out", str(tmp_path / name))
    assert code == 2
    assert "is a file that this command did not write" in errors
    assert (tmp_path / name).read_text() == before


def test_a_caption_that_no_file_can_hold_is_named_by_its_row(capsys, tmp_path):
    (tmp_path / "half.jsonl").write_text('{"caption": "a cat"}\n{"caption": "a \\ud800 cat"}\n')
    code, out, errors = run(capsys, "--table", str(tmp_path / "half.jsonl"), "--kinds", "replace")
    assert (code, out) == (3, "")
    assert "row 2 of" in errors
    assert "is not Unicode" in errors


def test_too_few_pairs_are_said_to_be_too_few(capsys, table, tmp_path):
    words = ("--table", table, "--kinds", "replace", "--balance", ".6")
    out = run(capsys, *words, "--out", str(tmp_path / "out.jsonl"))[1]
    assert "keeps 0 of 2 (0.0 %); WARNING: fewer than 50 pairs are not judged" in out


def test_texts_of_the_table_that_are_left_out_are_warned_of(capsys, tmp_path):
    (tmp_path / "own.jsonl").write_text('{"caption": "a red cat", "positives": ["a cat"]}\n')
    words = ("--table", str(tmp_path / "own.jsonl"), "--balance", ".6", "--kinds")
    warnings = [
        "WARNING: the positives that the captions' table had are not in the new one"
        in run(capsys, *words, kind, "--out", str(tmp_path / f"{kind}.jsonl"))[1]
        for kind in ("replace", "crepe_replace")
    ]
    assert warnings == [True, False]


def test_captions_that_are_mostly_the_same_are_warned_of(capsys, tmp_path):
    rows = [{"image": f"{n}.png", "caption": "a red cat"} for n in range(9)]
    (tmp_path / "same.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = run(capsys, "--table", str(tmp_path / "same.jsonl"), "--kinds", "replace")[1]
    assert "WARNING: only 1 of the captions are different" in out


def test_texts_that_give_themselves_away_are_counted(balanced, capsys):
    _, words = balanced
    out = run(capsys, *words[:-2])[1]
    (line,) = (line for line in out.splitlines() if line.startswith("  from_table: 300"))
    assert 60 < float(line.split("; blind ")[1].split()[0]) < 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kinds", "replace", "--balance", ".6"), "--balance SHARE and --out FILE"),
        (("--kinds", "replace", "--out", "x.jsonl"), "--balance SHARE and --out FILE"),
        (("--kinds", "replace", "--balance", "60", "--out", "x"), "below 1; got 60"),
        (("--kinds", "replace", "--candidates", "8"), "--candidates 8 is for --balance"),
        (("--kinds", ","), "--kinds ',' names no generator"),
        (("--kinds", "replace", "--balance", ".6", "--out", "."), "--out . is a folder"),
        (("--kinds", "replace", "--balance", ".6", "--out", "no/x"), "there is no folder no;"),
        (("--kinds", "svlc"), "unknown kind 'svlc'; known: "),
        (("--kinds", "replace", "--option", "swap={}"), "no such generator in --kinds replace"),
        (("--kinds", "replace", "--seed", "-1"), "--seed must be at least 0"),
        (("--kinds", "replace", "--column", "title"), "has no column 'title'"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(capsys, table, words, message):
    code, _, errors = run(capsys, "--table", table, *words)
    assert code == 2
    assert message in errors
    assert len(errors.splitlines()) == 1
