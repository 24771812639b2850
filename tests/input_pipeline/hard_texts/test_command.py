"""The command that shows captions beside their hard texts."""

import json

import pytest

from vlc_jax.input_pipeline.commands import hard_texts as command


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
    assert "  swap: 1 have a text; WARNING: most have none, and take no part in the loss" in lines
    assert any(line.startswith("  replace: 2 have a text; new words: ") for line in lines)


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
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
