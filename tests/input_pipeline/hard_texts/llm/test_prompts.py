"""Answers of language models as captions; prompts; requests and files that are wrong."""

import pytest

from tests.support import batches
from vlc_jax.input_pipeline.commands import write_hard_texts as command
from vlc_jax.input_pipeline.hard_texts.llm import answers, prompts
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS

CAPTION = "A dog runs on the grass."


def answer(text, finish="stop"):
    return answers.Answer(text, finish, 10, 5, "tiny-1")


def caption_in(said):
    texts, reason = answers.read_caption(said, CAPTION)
    assert len(texts) == (reason is None)
    return (texts[0].text if texts else None), reason


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
    assert caption_in(answer(text)) == ("A hound runs on the grass.", None)


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
    assert caption_in(answer(text)) == (text, None)


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
    assert caption_in(answer(text, finish)) == (None, reason)


def test_a_whole_first_line_counts_where_later_ones_are_cut_off():
    text = "A hound runs on the grass.\n\nInput: A c"
    assert caption_in(answer(text, "length"))[0] == "A hound runs on the grass."


def examples(name):
    *parts, last = PRESETS[name].prompt.split("Input: ")[1:]
    assert last == f"{prompts.PLACE}\nOutput:"
    return [part.strip().split("\nOutput:", 1) for part in parts]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_reads_its_own_examples(name):
    preset, pairs = PRESETS[name], examples(name)
    assert preset.prompt.count(prompts.PLACE) == 1
    assert pairs or name == "hp_replace"  # whose prompt has none
    for caption, output in pairs:
        assert preset.unfit(caption) is None
        texts, reason = preset.read(answer(output), caption)
        assert reason is None
        assert len(texts) == len(output.strip().splitlines())
        assert all((text.foil is not None) == preset.has_foils for text in texts)
        assert all(stop not in output for stop in preset.stop)


@pytest.mark.parametrize("name", ["swap", "hp_swap"])
def test_examples_of_swaps_keep_every_word(name):
    for pair in examples(name):
        before, after = (sorted(text.casefold().rstrip(".").split()) for text in pair)
        assert [word.strip(",") for word in before] == [word.strip(",") for word in after]


def test_a_list_ends_where_its_numbers_do():
    """A base model goes on with lists of other captions."""
    text = (
        "Here they are:\n\n1. A cat sleeps.\n2) **A dog barks.**\n3. a CAT sleeps\n4. a dog\n\n"
        "Input: a bus\nOutput:\n1. A bus waits."
    )
    texts, reason = answers.read_sentences(answer(text), "A dog")
    assert [each.text for each in texts] == ["A cat sleeps.", "A dog barks."]  # no caption, once
    assert reason is None
    again = answers.read_sentences(answer("1. A cat sleeps.\n1. A bus waits."), "a dog")[0]
    assert [each.text for each in again] == ["A cat sleeps."]
    cut = answers.read_sentences(answer("- A cat sleeps.\n- A dog", "length"), "a dog")[0]
    assert [each.text for each in cut] == ["A cat sleeps."]


def test_phrases_follow_the_rules_of_their_paper():
    text = "1. a dog\n2. x\n3. grass (green)\n4. a dog that runs on the green grass\n5. Grass."
    texts, _ = answers.read_phrases(answer(text), CAPTION)
    assert [each.text for each in texts] == ["a dog", "Grass"]


def test_units_are_pairs_of_entities_and_relations():
    lines = [
        "entity: dog -> cat",
        "Entity: dog => bird",  # there already
        "- relation: dog is running on grass → dog is lying on grass.",
        "entity: grass -> Grass",  # the foil says the same
        "entity: sky",
        "dog -> cat",  # neither
        "entity: a -> b -> c",
    ]
    texts, _ = answers.read_units(answer("\n".join(lines)), CAPTION)
    assert texts == [
        answers.Text("dog", "cat", "entity"),
        answers.Text("dog is running on grass", "dog is lying on grass", "relation"),
    ]


@pytest.mark.parametrize("read", [answers.read_sentences, answers.read_phrases, answers.read_units])
@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        (None, "stop", "empty"),
        ("A dog runs.", "stop", "no list"),
        ("None", "stop", "answered None"),
        ("I'm sorry, I can't.", "stop", "refusal"),
        ("1. A cat", "length", "cut off"),
        ("1. \ufffd\n2. x \ud83d", "stop", "damaged letters"),
        ("A", "content_filter", "content filter"),
    ],
)
def test_why_an_answer_is_no_list(read, text, finish, reason):
    assert read(answer(text, finish), CAPTION) == ([], reason)


def test_braces_and_line_breaks_of_a_caption_do_no_harm():
    assert prompts.fill("Input: {caption}\n", "a {caption}\n in  {braces}") == (
        "Input: a {caption} in {braces}\n"
    )


def test_the_list_and_the_help_name_every_preset_in_one_line(capsys):
    for flag in ("--list", "--help"):
        with pytest.raises(SystemExit) as ended:
            command.main([flag])
        assert ended.value.code == 0
        lines = capsys.readouterr().out.splitlines()
        for name, preset in PRESETS.items():
            assert [line for line in lines if line.split()[:1] == [name]] == [
                f"  {name:17}{preset.about}"
            ]


@pytest.mark.parametrize(
    ("name", "content", "options", "code", "said"),
    [
        ("no.jsonl", None, (), 2, "no file"),
        ("a.jsonl", "", (), 3, "holds no rows"),
        ("a.txt", "\n\n", (), 3, "holds no captions"),
        ("a.txt", b"\xff", (), 3, "is not UTF-8"),
        ("a.jsonl", '{"title": "x"}\n', (), 2, "no column 'caption' but ['title']; see --column"),
        ("a.jsonl", '{"caption": 3}\n', (), 3, "row 1 of"),
        ("a.jsonl", '{"caption": "x"}\n{"captio', (), 3, "row 2 of"),
        ("a.json", '{"images": [], "annotations": []}', (), 3, "holds no captions"),
        ("a.json", '{"images": [], "annotations": [{"caption": 1}]}', (), 3, "lacks 'image_id'"),
        ("a.parquet", "x", (), 3, "is no Parquet file"),
        ("a.arrow", "x", (), 2, "the name of a table ends with"),
        ("a.txt", "x", ("--prompt", "LICENSE"), 2, "LICENSE has no {caption}"),
        ("a.txt", "x", ("--prompt", "no"), 2, "No such file"),
        ("a.txt", "x", ("--option", "stream=true"), 2, "--option cannot set 'stream'"),
        ("a.txt", "x", ("--option", "top_k"), 2, "--option wants NAME=VALUE"),
        ("a.txt", "x", ("--option", "a=1", "--option", "a=2"), 2, "--option a=... is there twice"),
        ("a.txt", "x", ("--temperature", "nan"), 2, "not JSON compliant"),
        ("a.txt", "x", ("--out", "LICENSE"), 2, "is a file; name a folder"),
        ("a.txt", "x", ("--out", "docs"), 2, "docs is not empty"),
    ],
)
def test_a_wrong_request_or_file_ends_with_one_clear_line(
    tmp_path, capsys, name, content, options, code, said
):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert batches.ask(path, tmp_path / "hp", *options) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "hp").exists()
