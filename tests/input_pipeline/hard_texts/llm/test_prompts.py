"""Answers of language models as captions; prompts; requests and files that are wrong."""

import fcntl
import json
import sys

import pytest

from input_pipeline.hard_texts.llm import __main__ as command
from input_pipeline.hard_texts.llm import prompts

CAPTION = "A dog runs on the grass."
ENDPOINT = ("--model", "tiny", "--base-url", "http://127.0.0.1:9/v1")


def answer(text, finish="stop"):
    return prompts.Answer(text, finish, 10, 5, "tiny-1")


@pytest.mark.parametrize(
    "text",
    [
        "A hound runs on the grass.",
        "  A hound runs  on the grass.\n",
        "Output: A hound runs on the grass.",
        'output: "A hound runs on the grass."',
        '"Output: A hound runs on the grass."',
        "“A hound runs on the grass.”",
        "1. A hound runs on the grass.",
        "(1) A hound runs on the grass.",
        "- A hound runs on the grass.",
        "**A hound runs on the grass.**",
        "**Output:** A hound runs on the grass.",
        "New caption: `A hound runs on the grass.`",
        "Sure! Here is the new caption:\n\nA hound runs on the grass.",
        "Output:\nA hound runs on the grass.\n\nInput: A cat sleeps.\nOutput: A cat naps.",
        "A hound runs\u2028on the\x85grass.",  # not the end of a line, but white space
        "<think>\nA dog is a hound.\n</think>\n\nA hound runs on the grass.",
    ],
)
def test_only_the_caption_is_left_of_an_answer(text):
    assert prompts.clean(answer(text), CAPTION) == ("A hound runs on the grass.", None)


@pytest.mark.parametrize(
    "text",
    [
        "7.5 metres of rope",
        "2 dogs run",
        'a sign that says "stop"',
        '"one" and "two"',
        "'tis a dog's life",
        "a note with the caption: hello",
        "None of the dogs run",
    ],
)
def test_what_belongs_to_the_caption_stays(text):
    assert prompts.clean(answer(text), CAPTION) == (text, None)


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        (None, "stop", "empty"),
        (" \n", "stop", "empty"),
        ("Here is the caption:", "stop", "empty"),
        ('"a DOG runs  on the grass"', "stop", "same as the caption"),
        ("None.", "stop", "answered None"),
        ("Output: N/A", "stop", "answered None"),
        ("I'm sorry, but I cannot help.", "stop", "refusal"),
        ("I can’t do that.", "stop", "refusal"),
        ("A hound runs on the", "length", "cut off"),
        ("Here is the caption:\nA hound runs on", "length", "cut off"),
        ("<think>A dog may also be", "length", "cut off"),
        ("A h\ufffdund runs on the grass.", "stop", "damaged letters"),
        ("A hound runs on the grass \ud83d", "stop", "damaged letters"),
        ("A hound", "content_filter", "content filter"),
    ],
)
def test_why_an_answer_is_no_hard_positive(text, finish, reason):
    assert prompts.clean(answer(text, finish), CAPTION) == (None, reason)


def test_a_whole_first_line_counts_where_later_ones_are_cut_off():
    text = "A hound runs on the grass.\n\nInput: A c"
    assert prompts.clean(answer(text, "length"), CAPTION)[0] == "A hound runs on the grass."


def test_prompts_have_five_examples_and_one_place_and_swaps_keep_every_word():
    for kind in prompts.KINDS.values():
        assert kind.prompt.count(prompts.PLACE) == 1
        assert kind.prompt.count("Input: ") == kind.prompt.count("Output:") == 6
    lines = prompts.KINDS["swap"].prompt.splitlines()
    examples = [line.partition(": ") for line in lines if line.startswith(("Input: ", "Output: "))]
    texts = [text for _, _, text in examples if text and text != prompts.PLACE]
    for before, after in zip(texts[::2], texts[1::2], strict=True):
        assert prompts.KINDS["swap"].unfit(before) is None
        assert sorted(before.casefold().rstrip(".").split()) == sorted(
            after.casefold().rstrip(".").split()
        )


def test_braces_and_line_breaks_of_a_caption_do_no_harm():
    assert prompts.fill("Input: {caption}\n", "a {caption}\n in  {braces}") == (
        "Input: a {caption} in {braces}\n"
    )


@pytest.fixture
def captions(tmp_path):
    path = tmp_path / "captions.jsonl"
    path.write_text('{"caption": ["a dog and a cat", "two pets"]}\n{"caption": "a horse"}\n')
    return path


def test_a_dry_run_shows_prompts_and_cost_and_needs_no_library(
    tmp_path, captions, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "openai", None)  # as if it were not installed
    fixed = ["replace", str(captions), "--out", str(tmp_path / "hp"), *ENDPOINT]
    assert command.main([*fixed, "--dry-run", "--price-in", "1000"]) == 0
    said = capsys.readouterr().out
    assert "Input: two pets\nOutput:" in said
    letters = sum(
        len(prompts.fill(prompts.KINDS["replace"].prompt, caption))
        for caption in ("a dog and a cat", "two pets", "a horse")
    )
    tokens = letters // 4
    assert f"3 captions, 3 to ask; about {tokens:,} tokens in" in said
    assert f"cost about {tokens / 1000:.2f}" in said
    assert command.main(fixed) == 2
    assert "pip install openai" in capsys.readouterr().err
    assert not (tmp_path / "hp").exists()


@pytest.mark.parametrize(
    ("name", "content", "options", "code", "said"),
    [
        ("no.jsonl", None, (), 2, "no file"),
        ("a.jsonl", "", (), 3, "holds no rows"),
        ("a.txt", "\n\n", (), 3, "holds no captions"),
        ("a.txt", b"\xff\xfe", (), 3, "is not UTF-8"),
        ("a.jsonl", '{"title": "x"}\n', (), 2, "no column 'caption' but ['title']; see --column"),
        ("a.jsonl", '{"caption": 3}\n', (), 3, "row 1 of"),
        ("a.jsonl", '{"caption": "x"}\n{"captio', (), 3, "row 2 of"),
        ("a.json", '{"images": [], "annotations": []}', (), 3, "holds no captions"),
        ("a.json", '{"images": [], "annotations": [{"id": 1}]}', (), 3, "annotation 1 of"),
        ("a.parquet", "x", (), 2, "the name of a table ends with"),
        ("a.txt", "x", ("--prompt", "LICENSE"), 2, "LICENSE has no {caption}"),
        ("a.txt", "x", ("--prompt", "no"), 2, "No such file"),
        ("a.txt", "x", ("--option", "stream=true"), 2, "--option cannot set 'stream'"),
        ("a.txt", "x", ("--option", "top_k"), 2, "--option wants NAME=VALUE"),
        ("a.txt", "x", ("--base-url", "localhost:8000"), 2, "is an http address"),
        ("a.txt", "x", ("--base-url", "http://"), 2, "is an http address"),
        ("a.txt", "x", ("--base-url", "http://localhost:x/v1"), 2, "is an http address"),
        ("a.txt", "x", ("--base-url", "http://me:secret@localhost/v1"), 2, "belongs in OPENAI_"),
        ("a.txt", "x", ("--base-url", "https://api.openai.com/v1"), 2, "key in OPENAI_API_KEY"),
        ("a.txt", "x", ("--out", "LICENSE"), 2, "is a file; name a folder"),
        ("a.txt", "x", ("--out", "docs"), 2, "docs is not empty"),
    ],
)
def test_a_wrong_request_or_file_ends_with_one_clear_line(
    tmp_path, capsys, monkeypatch, name, content, options, code, said
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    fixed = ["replace", str(path), "--out", str(tmp_path / "hp"), *ENDPOINT]
    assert command.main([*fixed, *options]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert "secret" not in error
    assert not (tmp_path / "hp").exists()


def test_a_damaged_key_is_not_shown(tmp_path, captions, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret\nsk-secret")
    fixed = ["replace", str(captions), "--out", str(tmp_path / "hp"), *ENDPOINT]
    assert command.main(fixed) == 2
    error = capsys.readouterr().err
    assert "OPENAI_API_KEY holds letters that no key has" in error
    assert "secret" not in error


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("raw.jsonl", '{"line": 4}\n', "row 1 of"),
        ("raw.jsonl", "x\n", "row 1 of"),
        ("summary.json", "{}", "is damaged"),
        ("summary.json", None, "is missing"),
    ],
)
def test_a_damaged_folder_is_said(tmp_path, captions, capsys, file, content, said):
    fixed = ["replace", str(captions), "--out", str(tmp_path / "hp"), *ENDPOINT]
    assert command.main(fixed) == 30  # nobody listens, but the folder has been begun
    row = {"line": 1, "text": "x", "finish": "stop", "prompt_tokens": 1, "completion_tokens": 1}
    (tmp_path / "hp" / "raw.jsonl").write_text(json.dumps(row | {"model": "m"}) + "\n")
    path = tmp_path / "hp" / file
    path.unlink() if content is None else path.write_text(content)
    capsys.readouterr()
    assert command.main(fixed) == 3
    assert said in capsys.readouterr().err


def test_a_folder_that_another_process_writes_to_is_refused(tmp_path, captions, capsys):
    fixed = ["replace", str(captions), "--out", str(tmp_path / "hp"), *ENDPOINT]
    (tmp_path / "hp").mkdir()
    with (tmp_path / "hp" / "raw.jsonl").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert command.main(fixed) == 2
    assert "another process writes to" in capsys.readouterr().err
