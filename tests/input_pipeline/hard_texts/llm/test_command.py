"""Batch files of requests, and hard texts from their answers."""

import json

import pytest

from tests.support import batches, helpers
from tests.support.batches import CAPTIONS, hound, positives, reply, save, summary
from vlc_jax.input_pipeline.hard_texts.llm import prompts
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS

HOUNDS = [caption.replace("dog", "hound") for caption in CAPTIONS]


@pytest.fixture
def captions(tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(CAPTIONS) + "\n")
    return path


def test_line_k_is_the_hard_positive_of_caption_k(tmp_path, captions, capsys):
    out = tmp_path / "hp"
    assert batches.ask(captions, out) == 0
    says = batches.answer(out, lambda text: None if text.endswith("number 3") else hound(text))
    assert batches.read(out, says) == 0
    assert positives(out) == [*HOUNDS[:3], "None", *HOUNDS[4:]]
    told = summary(out)
    assert told["missing"] == {"empty": 1}
    assert (told["captions_with_texts"], told["tokens"]) == (11, {"in": 1200, "out": 120})
    assert told["models_that_answered"] == {"tiny-1": 12}
    assert "11 of 12 captions have texts" in capsys.readouterr().out


def test_answers_are_read_from_files_in_any_order(tmp_path, captions):
    out = tmp_path / "hp"
    batches.ask(captions, out, "--requests-per-file", "5")
    names = [path.name for path in sorted(out.glob("batch*"))]
    assert names == ["batch_001.jsonl", "batch_002.jsonl", "batch_003.jsonl"]
    rows = helpers.rows(batches.answer(out))
    files = [save(tmp_path / f"{k}.jsonl", *rows[k::3]) for k in (2, 0, 1)]
    assert batches.read(out, *files) == 0
    assert positives(out) == HOUNDS


def test_a_request_has_the_prompt_and_the_fields_of_its_preset(tmp_path, captions):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Say {this} otherwise.\nInput: {caption}\n")
    options = ("--option", "top_k=50", "--option", "temperature=null", "--seed", "7")
    batches.ask(captions, tmp_path / "chat", *options, "--prompt", str(prompt))
    request = batches.requests(tmp_path / "chat")[5]
    assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
    content = f"Say {{this}} otherwise.\nInput: {CAPTIONS[5]}\n"
    fields = {"model": "tiny", "max_tokens": 30, "top_p": 0.9, "top_k": 50, "seed": 12}
    assert request["body"] == fields | {"messages": [{"role": "user", "content": content}]}
    batches.ask(captions, tmp_path / "text", "--form", "text", kind="dac_dense")
    request = batches.requests(tmp_path / "text")[0]
    fields = {"model": "tiny", "max_tokens": 400, "temperature": 1.0, "top_p": 1.0, "seed": 0}
    prompt = prompts.fill(PRESETS["dac_dense"].prompt, CAPTIONS[0])
    assert request["body"] == fields | {"stop": ["\nInput:"], "prompt": prompt}
    assert request["url"] == "/v1/completions"


def test_swap_asks_only_about_short_captions_with_the_word_and(tmp_path):
    fits = ["A cat AND a dog", "cat and " + "very " * 11 + "dog"]  # the second has 14 words
    unfit = ["sand on a beach", "cat and " + "very " * 12 + "dog", ""]
    captions = save(tmp_path / "captions.jsonl", *({"title": text} for text in fits + unfit))
    out = tmp_path / "hp"
    assert batches.ask(captions, out, "--column", "title", kind="swap") == 0
    assert [*map(batches.caption_of, batches.requests(out))] == fits
    assert batches.read(out, batches.answer(out, lambda text: f"{text} swapped")) == 0
    assert positives(out, "swap") == [f"{text} swapped" for text in fits] + ["None"] * 3
    assert summary(out)["missing"] == {'no "and"': 2, "15 words or more": 1}


OPENAI = {"response": None, "error": {"code": "batch_expired", "message": "not in 24 hours"}}
LIMIT = {"error": {"message": "slow\ndown", "code": "rate_limit_exceeded"}}
ERRORS = {
    "openai": (OPENAI, "error batch_expired", "batch_expired: not in 24 hours"),
    "response": (
        {"response": {"status_code": 429, "body": LIMIT}},
        *("error rate_limit_exceeded", "rate_limit_exceeded: slow down"),
    ),
    "vllm": (
        {"response": {"status_code": 400, "body": None}, "error": {"error": {"message": "long"}}},
        *("error 400", "400: long"),
    ),
    "vllm text": ({"response": {"status_code": 400}, "error": "bad"}, "error 400", "400: bad"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_counted_and_asked_again(tmp_path, captions, case):
    error, reason, shown = ERRORS[case]
    out = tmp_path / "hp"
    batches.ask(captions, out, "--requests-per-file", "5")
    first = batches.answer(out, lambda text: error if text in CAPTIONS[2:9] else hound(text))
    assert batches.read(out, first) == 0
    assert summary(out)["missing"] == {reason: 7}
    assert summary(out)["unusable_answers"][reason][0]["answer"] == shown
    assert positives(out).count("None") == 7
    assert batches.ask(captions, out, "--missing", str(first)) == 0
    assert [path.name for path in out.glob("batch*")] == ["batch.jsonl"]  # none of the first call
    assert [*map(batches.caption_of, batches.requests(out))] == CAPTIONS[2:9]
    second = batches.answer(out, name="second.jsonl")
    for files in ((first, second), (second, first)):
        assert batches.read(out, *files) == 0
        assert positives(out) == HOUNDS
    assert batches.ask(captions, out, "--missing", str(first), str(second)) == 0
    assert batches.requests(out) == []


def test_a_caption_that_the_service_filters_is_not_asked_again(tmp_path, captions):
    out, error = tmp_path / "hp", {"error": {"code": "content_filter", "message": "no"}}
    batches.ask(captions, out)
    row = {"response": {"status_code": 400, "request_id": "r", "body": error}}
    says = batches.answer(out, lambda text: row if text == CAPTIONS[2] else hound(text))
    batches.read(out, says)
    assert summary(out)["missing"] == {"content filter": 1}
    batches.ask(captions, out, "--missing", str(says))
    assert batches.requests(out) == []


def body(**fields):
    response = reply("", "x")["response"]
    return {"response": response | {"body": response["body"] | fields}}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("<html>\n", "JSONDecodeError"),
        ('{"custom_id": "', "JSONDecodeError"),  # cut in a copy
        ("[" * 100_000 + "\n", "RecursionError"),
        ("[1]\n", "TypeError"),
        ('{"response": {}}\n', "KeyError('custom_id')"),
        ({"response": None}, "KeyError('choices')"),
        (body(choices=[]), "IndexError"),
        (body(choices=[{"text": ["a"]}]), "text is needed; got (['a']"),
        (body(usage={"prompt_tokens": -1}), "numbers of tokens are needed"),
        (body(usage={"prompt_tokens": 10**400}), "numbers of tokens"),
    ],
)
def test_a_row_that_is_no_answer_is_named(tmp_path, captions, capsys, row, said):
    out = tmp_path / "hp"
    batches.ask(captions, out)
    *rows, last = helpers.rows(batches.answer(out))
    says = save(tmp_path / "says.jsonl", *rows)
    with says.open("a") as file:
        file.write(row if isinstance(row, str) else json.dumps(last | row) + "\n")
    assert batches.read(out, says) == 0
    error = capsys.readouterr().err
    assert error.startswith(f"warning: {says}: 1 rows are no answers, the first is row 12 (")
    assert said in error
    assert error.count("\n") == 1
    assert summary(out)["missing"] == {"no answer": 1}
    assert summary(out)["problems"] == [error.removeprefix("warning: ").strip()]


def test_repeated_answers_and_files_without_any_are_named(tmp_path, captions, capsys):
    out = tmp_path / "hp"
    batches.ask(captions, out)
    says, empty = batches.answer(out), save(tmp_path / "empty.jsonl")
    again = batches.answer(out, lambda text: "a cat", name="again.jsonl")
    assert batches.read(out, says, empty, again) == 0
    error = capsys.readouterr().err
    assert f"{again}: 12 captions have an answer already, the first in row 1" in error
    assert f"{empty} holds no answers" in error
    assert (positives(out), summary(out)["tokens"]["in"]) == (HOUNDS, 1200)


def test_answers_to_another_request_and_no_answers_are_refused(tmp_path, captions, capsys):
    out, other = tmp_path / "hp", tmp_path / "other"
    batches.ask(captions, out)
    batches.ask(captions, other, "--temperature", "1")
    capsys.readouterr()
    name = batches.requests(out)[0]["custom_id"].removesuffix("-1")
    files = {
        batches.answer(other): (2, "row 1 of {} answers another request: its custom_id is 'replac"),
        save(tmp_path / "a.jsonl", reply(f"{name}-13", "x")): (2, f"has {name}-1 to {name}-12;"),
        save(tmp_path / "b.jsonl", reply("request-1", "x")): (2, "custom_id is 'request-1'"),
        out / "batch.jsonl": (3, "{}: 12 rows are no answers"),
        save(tmp_path / "empty.jsonl"): (3, "{} holds no answers"),
        tmp_path / "no.jsonl": (2, "No such file or directory: '{}'"),
    }
    for path, (code, said) in files.items():
        for missing in (False, True):
            options = ("--missing", str(path))
            run = batches.ask(captions, out, *options) if missing else batches.read(out, path)
            assert run == code
            error = capsys.readouterr().err
            assert said.format(path) in error
            assert (error[:7], error.count("\n")) == ("error: ", 1)
    assert {path.name for path in out.iterdir()} == {"batch.jsonl", "request.json"}
    assert len(batches.requests(out)) == 12


def test_another_request_for_a_folder_is_refused(tmp_path, captions, capsys):
    out = tmp_path / "hp"
    batches.ask(captions, out)
    assert batches.ask(captions, out, "--temperature", "1") == 2
    assert "'temperature': 0.6" in capsys.readouterr().err
    captions.write_text(captions.read_text().replace("number 11", "number eleven"))
    assert batches.ask(captions, out) == 2
    assert "captions_sha256 was" in capsys.readouterr().err
    assert batches.read(out, batches.answer(out)) == 2
    assert "captions_sha256 was" in capsys.readouterr().err
    (out / "request.json").write_text("{}")
    assert batches.read(out, out / "answers.jsonl") == 3
    assert "request.json is damaged (KeyError('request'))" in capsys.readouterr().err


def test_a_version_names_prompt_model_and_sampling(tmp_path, captions):
    """Texts with the same name were made alike, whatever the captions."""
    other = tmp_path / "other.txt"
    other.write_text("a horse\n")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Say it otherwise.\nInput: {caption}\n")
    runs = {
        "first": (captions, ()),
        "others": (other, ()),
        "model": (captions, ("--model", "small")),
        "answering": (captions, ()),
        "prompt": (captions, ("--prompt", str(prompt))),
        "sampling": (captions, ("--temperature", "0")),
        "seed": (captions, ("--seed", "1")),
    }
    versions = {}
    for name, (file, options) in runs.items():
        out = tmp_path / "runs" / name
        batches.ask(file, out, *options)
        says = body(model="tiny-2") if name == "answering" else "a cow"
        assert batches.read(out, batches.answer(out, lambda _, says=says: says)) == 0
        versions[name] = summary(out)["version"]
        kinds = {row["positive_kinds"] for row in helpers.rows(out / "table.jsonl")}
        assert kinds == {versions[name]}
    assert all(version.startswith("replace/") for version in versions.values())
    assert versions["first"] == versions.pop("others")
    assert len({*versions.values()}) == 6


def test_the_table_has_the_texts_in_the_order_of_captions(tmp_path):
    images = [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}]
    order = [(2, "dog b"), (1, "dog a"), (2, "dog c")]
    entries = [{"id": k, "image_id": i, "caption": text} for k, (i, text) in enumerate(order)]
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"images": images, "annotations": entries}))
    table = save(
        tmp_path / "captions.jsonl",
        {"caption": ["dog b", ""]},
        {"image": "1.jpg", "size": 3, "caption": "dog a"},
    )
    for file, out in ((path, tmp_path / "coco"), (table, tmp_path / "table")):
        batches.ask(file, out)
        assert batches.read(out, batches.answer(out)) == 0
    one, two = helpers.rows(tmp_path / "coco" / "table.jsonl")
    assert (one["id"], one["image"], one["caption"]) == ("1", "1.jpg", ["dog a"])
    assert (two["caption"], two["positives"]) == (["dog b", "dog c"], [["hound b"], ["hound c"]])
    assert one["positives"] == ["hound a"]
    assert positives(tmp_path / "coco") == ["hound b", "hound a", "hound c"]  # of the annotations
    one, two = helpers.rows(tmp_path / "table" / "table.jsonl")
    assert (one["positives"], two["positives"], two["size"]) == ([["hound b"], []], ["hound a"], 3)
    # a text would be written over
    assert batches.ask(tmp_path / "table" / "table.jsonl", tmp_path / "again") == 2
    assert not (tmp_path / "again").exists()


def test_unusable_answers_are_shown_in_the_summary(tmp_path, captions):
    said = {CAPTIONS[1]: "I'm sorry, I can't do that.", CAPTIONS[4]: CAPTIONS[4]}
    said |= dict.fromkeys(CAPTIONS[6:], "None " * 1000)
    said |= {CAPTIONS[5]: body(choices=[{"text": "a ho", "finish_reason": "length"}])}
    out = tmp_path / "hp"
    batches.ask(captions, out)
    batches.read(out, batches.answer(out, lambda text: said.get(text) or hound(text)))
    told = summary(out)
    assert told["missing"] == {"too long": 6, "refusal": 1, "same as the caption": 1, "cut off": 1}
    shown = told["unusable_answers"]
    expected = {"line": 2, "caption": CAPTIONS[1], "answer": said[CAPTIONS[1]]}
    assert shown["refusal"] == [expected]
    assert len(shown["too long"]) == 3
    assert max(len(each["answer"]) for each in shown["too long"]) == 200


def test_a_limit_is_for_trying_and_a_later_call_goes_on(tmp_path, captions):
    out = tmp_path / "hp"
    batches.ask(captions, out, "--limit", "5")
    first = batches.answer(out)
    assert batches.read(out, first) == 0
    assert (positives(out), summary(out)["lines"]) == (HOUNDS[:5], 5)
    batches.ask(captions, out, "--missing", str(first))
    assert len(batches.requests(out)) == 7
    assert batches.read(out, first, batches.answer(out, name="second.jsonl")) == 0
    assert positives(out) == HOUNDS
    batches.ask(captions, out, "--limit", "5")
    batches.read(out, first)
    assert len(positives(out)) == 12


def test_results_are_replaced_when_they_are_whole(tmp_path, captions, monkeypatch):
    out = tmp_path / "hp"
    batches.ask(captions, out)
    says = batches.answer(out)
    batches.read(out, says)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    monkeypatch.setitem(PRESETS, "replace", PRESETS["replace"]._replace(read=lambda *_: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        batches.read(out, says)
    after = {path.name: path.read_bytes() for path in out.iterdir()}
    assert after | before == after
