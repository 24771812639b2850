"""Hard positives from a real local endpoint: order, retries, concurrency, resume, errors."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from input_pipeline.hard_texts.llm import __main__ as command
from input_pipeline.hard_texts.llm import captions as caption_files
from input_pipeline.hard_texts.llm import prompts
from input_pipeline.hard_texts.llm.presets import PRESETS
from tests.support import helpers
from tests.support.chat_server import Reply, completes, fails, says, serving

CAPTIONS = [f"a dog and cat number {i}" for i in range(12)]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def captions(tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(CAPTIONS) + "\n")
    return path


def hound(caption: str, _: int) -> Reply:
    return says(f"Output: {caption.replace('dog', 'hound')}")


def words(captions, out, url, *options, kind="replace"):
    fixed = ["--out", str(out), "--base-url", url, "--model", "tiny"]
    return [kind, str(captions), *fixed, *options]


def positives(out, kind="replace"):
    return helpers.rows(out / f"{kind}_hp.jsonl")


def summary(out):
    return json.loads((out / "summary.json").read_text())


def start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "input_pipeline.hard_texts.llm", *arguments],
        cwd=helpers.ROOT,
        env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_line_k_is_the_hard_positive_of_caption_k(tmp_path, captions, capsys):
    def answer(caption, n):
        time.sleep(0.05 if caption.endswith("0") else 0)  # answers come out of order
        return says(None) if caption.endswith("number 3") else hound(caption, n)

    with serving(answer) as server:
        options = ("--price-in", "2", "--price-out", "10")
        assert command.main(words(captions, tmp_path / "hp", server.url, *options)) == 0
    expected = [caption.replace("dog", "hound") for caption in CAPTIONS]
    expected[3] = "None"
    assert positives(tmp_path / "hp") == expected
    assert server.asked == dict.fromkeys(CAPTIONS, 1)
    raw = helpers.rows(tmp_path / "hp" / "raw.jsonl")
    texts = {row["line"]: row["text"] for row in raw}
    assert texts[1] == "Output: a hound and cat number 0"
    told = summary(tmp_path / "hp")
    assert told["complete"]
    assert told["missing"] == {"empty": 1}
    assert (told["captions_with_texts"], told["tokens"]) == (11, {"in": 1200, "out": 120})
    assert told["cost"] == pytest.approx((1200 * 2 + 120 * 10) / 1e6)
    assert told["models_that_answered"] == {"tiny-1": 12}
    assert told["endpoints"] == [server.url]
    assert "11 of 12 captions have texts" in capsys.readouterr().out


def test_swap_asks_only_about_short_captions_with_the_word_and(tmp_path):
    fits = ["A cat AND a dog", "cat and " + "very " * 11 + "dog"]  # the second has 14 words
    unfit = ["sand on a beach", "cat and " + "very " * 12 + "dog", ""]
    captions = tmp_path / "captions.jsonl"
    captions.write_text("".join(json.dumps({"title": text}) + "\n" for text in fits + unfit))
    with serving(lambda caption, _: says(f"{caption} swapped")) as server:
        arguments = words(captions, tmp_path / "hp", server.url, "--column", "title", kind="swap")
        assert command.main(arguments) == 0
    assert set(server.asked) == set(fits)
    assert positives(tmp_path / "hp", "swap") == [f"{text} swapped" for text in fits] + ["None"] * 3
    assert summary(tmp_path / "hp")["missing"] == {'no "and"': 2, "15 words or more": 1}


def test_what_is_sent(tmp_path, captions, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret\n")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Say {this} otherwise.\nInput: {caption}\n")
    options = ("--option", "top_k=50", "--option", "temperature=null", "--seed", "7")
    with serving(hound) as server:
        arguments = words(captions, tmp_path / "hp", server.url, *options, "--prompt", str(prompt))
        assert command.main(arguments) == 0
    by_seed = {body.pop("seed"): (headers, body) for headers, body in server.requests}
    assert sorted(by_seed) == [7 + line for line in range(12)]
    headers, body = by_seed[7 + 5]
    assert headers["authorization"] == "Bearer secret"
    content = f"Say {{this}} otherwise.\nInput: {CAPTIONS[5]}\n"
    assert body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 30,
        "top_p": 0.9,
        "top_k": 50,
    }


def test_a_plain_text_is_sent_with_its_stops_and_its_answer_read(tmp_path, captions):
    def answer(caption, n):
        return completes(f" {caption.replace('dog', 'hound')}")

    with serving(answer) as server:
        options = ("--form", "text", "--concurrency", "1")
        assert command.main(words(captions, tmp_path / "hp", server.url, *options)) == 0
        arguments = words(captions, tmp_path / "hp", server.url)
        assert command.main(arguments) == 2  # a request of the other form
    body = server.requests[0][1]
    assert body["prompt"] == prompts.fill(PRESETS["replace"].prompt, CAPTIONS[0])
    assert "messages" not in body
    assert body["stop"] == ["\n"]
    assert positives(tmp_path / "hp") == [caption.replace("dog", "hound") for caption in CAPTIONS]


def test_a_preset_is_asked_with_its_own_sampling(tmp_path, captions):
    with serving(lambda *_: says("1. a dog")) as server:
        for preset in ("dac_dense", "c2lip_phrases"):
            arguments = words(captions, tmp_path / preset, server.url, "--limit", "1", kind=preset)
            assert command.main(arguments) == 0
    bodies = [body for _, body in server.requests]
    sent = [(body["max_tokens"], body["temperature"], body.get("top_p")) for body in bodies]
    assert sent == [(400, 1.0, 1.0), (100, 0.0, None)]
    assert not any("stop" in body for body in bodies)  # a chat ends by itself


def test_a_version_names_prompt_model_and_sampling(tmp_path, captions):
    """Texts with the same name were made alike, whatever the endpoint and the captions."""
    other = tmp_path / "other.txt"
    other.write_text("a horse\n")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Say it otherwise.\nInput: {caption}\n")
    runs = {
        "first": (captions, ()),
        "others": (other, ("--concurrency", "2")),
        "model": (captions, ("--model", "small")),
        "prompt": (captions, ("--prompt", str(prompt))),
        "sampling": (captions, ("--temperature", "0")),
        "seed": (captions, ("--seed", "1")),
    }
    versions, kinds = {}, {}
    with serving(hound) as server:
        for name, (file, options) in runs.items():
            out = tmp_path / "runs" / name
            assert command.main(words(file, out, server.url, *options)) == 0
            versions[name] = summary(out)["version"]
            kinds[name] = {row["positive_kinds"] for row in helpers.rows(out / "table.jsonl")}
    assert all(version.startswith("replace/") for version in versions.values())
    assert versions["first"] == versions.pop("others")
    assert len({*versions.values()}) == 5
    assert all(kinds[name] == {version} for name, version in versions.items())


def test_the_table_has_the_texts_of_each_row_in_the_order_of_its_captions(tmp_path):
    images = [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}]
    order = [(2, "dog b"), (1, "dog a"), (2, "dog c")]
    entries = [{"id": k, "image_id": i, "caption": text} for k, (i, text) in enumerate(order)]
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"images": images, "annotations": entries}))
    table = tmp_path / "captions.jsonl"
    table.write_text(
        '{"caption": ["dog b", ""]}\n{"image": "1.jpg", "size": 3, "caption": "dog a"}\n'
    )
    with serving(hound) as server:
        assert command.main(words(path, tmp_path / "coco", server.url)) == 0
        assert command.main(words(table, tmp_path / "table", server.url)) == 0
    one, two = helpers.rows(tmp_path / "coco" / "table.jsonl")
    assert (one["id"], one["image"], one["caption"]) == ("1", "1.jpg", ["dog a"])
    assert (two["caption"], two["positives"]) == (["dog b", "dog c"], [["hound b"], ["hound c"]])
    assert one["positives"] == ["hound a"]
    assert positives(tmp_path / "coco") == ["hound b", "hound a", "hound c"]  # of the annotations
    one, two = helpers.rows(tmp_path / "table" / "table.jsonl")
    assert (one["positives"], two["positives"], two["size"]) == ([["hound b"], []], ["hound a"], 3)


def test_a_column_that_would_be_written_over_is_refused_before_anything_is_asked(
    tmp_path, captions, capsys
):
    out = tmp_path / "hp"
    with serving(hound) as server:
        assert command.main(words(captions, out, server.url)) == 0
        assert command.main(words(out / "table.jsonl", tmp_path / "again", server.url)) == 2
    assert "has a column 'positives' already" in capsys.readouterr().err
    assert sum(server.asked.values()) == 12
    assert not (tmp_path / "again").exists()


def test_unusable_answers_are_shown_in_the_summary(tmp_path, captions):
    said = {CAPTIONS[1]: "I'm sorry, I can't do that.", CAPTIONS[4]: CAPTIONS[4]}
    said |= dict.fromkeys(CAPTIONS[6:], "None " * 1000)

    def answer(caption, n):
        return says(said[caption]) if caption in said else hound(caption, n)

    with serving(answer) as server:
        options = ("--concurrency", "1")
        assert command.main(words(captions, tmp_path / "hp", server.url, *options)) == 0
    told = summary(tmp_path / "hp")
    assert told["missing"] == {"too long": 6, "refusal": 1, "same as the caption": 1}
    shown = told["unusable_answers"]
    assert {reason: len(examples) for reason, examples in shown.items()} == {
        "too long": 3,
        "refusal": 1,
        "same as the caption": 1,
    }
    expected = {"line": 2, "caption": CAPTIONS[1], "answer": said[CAPTIONS[1]]}
    assert shown["refusal"] == [expected]
    assert max(len(each["answer"]) for each in shown["too long"]) == 200


def test_a_run_of_before_there_were_forms_goes_on(tmp_path, captions):
    out = tmp_path / "hp"
    with serving(hound) as server:
        assert command.main(words(captions, out, server.url, "--limit", "5")) == 0
        told = summary(out)
        assert told["request"].pop("form") == "chat"
        (out / "summary.json").write_text(json.dumps(told))
        assert command.main(words(captions, out, server.url)) == 0
    assert server.asked == dict.fromkeys(CAPTIONS, 1)


def test_coco_captions_keep_the_order_of_the_annotations(tmp_path):
    images = [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}]
    order = [(2, "b"), (1, "a"), (2, "c")]
    entries = [{"id": k, "image_id": i, "caption": text} for k, (i, text) in enumerate(order)]
    path = tmp_path / "captions_train2017.json"
    path.write_text(json.dumps({"images": images, "annotations": entries}))
    assert caption_files.read(path) == ["b", "a", "c"]


@pytest.mark.parametrize("first", [fails(429, "slow down"), fails(503, "busy"), Reply(0, "")])
def test_a_passing_failure_is_tried_again(tmp_path, captions, first):
    def answer(caption, n):
        return first if n == 1 and caption == CAPTIONS[4] else hound(caption, n)

    with serving(answer) as server:
        assert command.main(words(captions, tmp_path / "hp", server.url)) == 0
    assert server.asked == dict.fromkeys(CAPTIONS, 1) | {CAPTIONS[4]: 2}
    assert "None" not in positives(tmp_path / "hp")


def test_as_many_questions_as_asked_for_are_under_way(tmp_path, captions):
    together = threading.Barrier(4)

    def answer(caption, n):
        together.wait(timeout=20)  # broken unless four are there at a time
        return hound(caption, n)

    with serving(answer) as server:
        options = ("--concurrency", "4", "--retries", "0")
        assert command.main(words(captions, tmp_path / "hp", server.url, *options)) == 0
    assert server.most == 4


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_stopped_run_continues_and_asks_nothing_twice(tmp_path, captions, number, code):
    out, go_on = tmp_path / "hp", threading.Event()

    def answer(caption, n):
        if caption not in CAPTIONS[:7]:
            go_on.wait(30)
        return hound(caption, n)

    with serving(answer) as server:
        arguments = words(captions, out, server.url, "--concurrency", "3")
        run = start(arguments)
        while run.poll() is None and (
            not (out / "raw.jsonl").exists() or len(helpers.rows(out / "raw.jsonl")) < 7
        ):
            time.sleep(0.02)
        run.send_signal(number)
        said = run.communicate(timeout=30)[1]
        assert run.returncode == code, said
        assert not (out / "replace_hp.jsonl").exists()
        go_on.set()
        with (out / "raw.jsonl").open("a") as file:
            file.write('{"line": 9, "te')  # as a kill in the middle of a write leaves it
        assert command.main(arguments) == 0
    assert {caption: server.asked[caption] for caption in CAPTIONS[:7]} == dict.fromkeys(
        CAPTIONS[:7], 1
    )
    assert positives(out) == [caption.replace("dog", "hound") for caption in CAPTIONS]
    assert sorted(row["line"] for row in helpers.rows(out / "raw.jsonl")) == [*range(1, 13)]


def test_a_limit_is_for_trying_and_a_later_run_goes_on(tmp_path, captions):
    out = tmp_path / "hp"
    with serving(hound) as server:
        assert command.main(words(captions, out, server.url, "--limit", "5")) == 0
        assert (len(positives(out)), summary(out)["complete"]) == (5, False)
        assert command.main(words(captions, out, server.url)) == 0
        assert (len(positives(out)), summary(out)["complete"]) == (12, True)
        assert command.main(words(captions, out, server.url, "--limit", "5")) == 0
        assert len(positives(out)) == 12
    assert server.asked == dict.fromkeys(CAPTIONS, 1)


def test_another_request_for_a_folder_is_refused_and_another_endpoint_is_not(
    tmp_path, captions, capsys
):
    out = tmp_path / "hp"
    with serving(hound) as server, serving(hound) as other:
        assert command.main(words(captions, out, server.url, "--limit", "5")) == 0
        assert command.main(words(captions, out, server.url, "--temperature", "1")) == 2
        assert "'temperature': 0.6" in capsys.readouterr().err
        captions.write_text(captions.read_text().replace("number 11", "number eleven"))
        assert command.main(words(captions, out, server.url)) == 2
        assert "captions_sha256 was" in capsys.readouterr().err
        captions.write_text("\n".join(CAPTIONS))
        assert command.main(words(captions, out, other.url)) == 0
    assert (sum(server.asked.values()), sum(other.asked.values())) == (5, 7)
    assert summary(out)["endpoints"] == [server.url, other.url]


def test_what_was_answered_before_a_failure_is_kept(tmp_path, captions, capsys):
    out, broken = tmp_path / "hp", [True]

    def answer(caption, n):
        is_hit = broken[0] and caption == CAPTIONS[6]
        return fails(500, "out of memory") if is_hit else hound(caption, n)

    with serving(answer) as server:
        arguments = words(captions, out, server.url, "--concurrency", "1", "--retries", "2")
        assert command.main(arguments) == 30
        said = capsys.readouterr().err
        assert "after 3 tries (500: out of memory); the same command continues" in said
        assert said.count("\n") == 1
        assert server.asked[CAPTIONS[6]] == 3
        broken[0] = False
        assert command.main(arguments) == 0
    assert server.asked == dict.fromkeys(CAPTIONS, 1) | {CAPTIONS[6]: 4}


def test_a_caption_that_the_endpoint_filters_has_none(tmp_path, captions):
    def answer(caption, n):
        is_hit = caption == CAPTIONS[2]
        return fails(400, "no", "content_filter") if is_hit else hound(caption, n)

    with serving(answer) as server:
        assert command.main(words(captions, tmp_path / "hp", server.url)) == 0
    assert positives(tmp_path / "hp")[2] == "None"
    assert summary(tmp_path / "hp")["missing"] == {"content filter": 1}


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (fails(401, "bad key"), 2, "got no key (401: bad key); put one into OPENAI_API_KEY"),
        (fails(404, "no such model"), 2, "knows no model 'tiny', or is no such address (404"),
        (fails(400, "unknown field top_p"), 2, "(400: unknown field top_p); --option NAME=VALUE"),
        (Reply(200, "<html>hello</html>"), 3, "chat completion but with '<html>hello</html>'"),
        (Reply(200, {"hello": 1}), 3, "but with '{\"hello\": 1}' (KeyError('choices'))"),
        (Reply(200, [1]), 3, "does not answer with a chat completion but with '[1]'"),
        (says(["a"]), 3, "text is needed; got (['a']"),
        (says("a", "x" * 300), 3, "a name is needed"),
        (Reply(200, says("a").body | {"usage": {"prompt_tokens": 10**400}}), 3, "numbers of tok"),
        (Reply(200, says("a").body | {"usage": {"prompt_tokens": -1}}), 3, "numbers of tokens"),
        (Reply(200, "[" * 100_000), 3, "does not answer with a chat completion"),
        (Reply(0, ""), 30, "cannot reach http://127.0.0.1"),
    ],
)
def test_a_wrong_answer_ends_the_run_with_one_clear_line(
    tmp_path, captions, capsys, reply, code, said
):
    with serving(lambda *_: reply) as server:
        arguments = words(captions, tmp_path / "hp", server.url, "--retries", "0")
        assert command.main(arguments) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_slow_endpoint_is_given_up_after_the_timeout(tmp_path, captions, capsys):
    never = threading.Event()
    with serving(lambda *_: never.wait(20) and says("late")) as server:
        options = ("--retries", "0", "--timeout", "0.2")
        assert command.main(words(captions, tmp_path / "hp", server.url, *options)) == 30
        never.set()
    assert "gives no answer within 0.2 s after 1 try" in capsys.readouterr().err


def test_nobody_there_is_said_at_once(tmp_path, captions, capsys):
    with serving(hound) as server:
        url = server.url
    begun = time.monotonic()
    assert command.main(words(captions, tmp_path / "hp", url)) == 30
    assert f"cannot reach {url} after 1 try" in capsys.readouterr().err
    assert time.monotonic() - begun < 10  # eight retries would take 40 seconds


def test_the_timeout_is_for_the_whole_answer(tmp_path, captions, capsys):
    dripping = hound(CAPTIONS[0], 1)._replace(pause=0.05)  # all of it takes 15 seconds
    with serving(lambda *_: dripping) as server:
        options = ("--retries", "1", "--timeout", "0.3", "--limit", "1")
        assert command.main(words(captions, tmp_path / "hp", server.url, *options)) == 30
    assert server.asked == {CAPTIONS[0]: 2}
    assert "gives no answer within 0.3 s after 2 tries" in capsys.readouterr().err


def test_answers_larger_than_a_caption_are_unusable_and_the_others_kept(tmp_path, captions):
    """A megabyte is not read to its end; what is shorter is read, and is no caption."""
    letters = {CAPTIONS[1]: 1_100_000, CAPTIONS[2]: 900_000, CAPTIONS[3]: 200}

    def answer(caption, n):
        return says("hound " * (letters[caption] // 6)) if caption in letters else hound(caption, n)

    out = tmp_path / "hp"
    with serving(answer) as server:
        assert command.main(words(captions, out, server.url)) == 0
    assert [text == "None" for text in positives(out)[:5]] == [False, True, True, True, False]
    assert summary(out)["missing"] == {"too long": 3}
    assert helpers.rows(out / "raw.jsonl")
    assert max(len(row["text"] or "") for row in helpers.rows(out / "raw.jsonl")) < 1_000_000


def test_an_answer_is_utf8_whatever_its_header_says(tmp_path, captions):
    header = ("content-type", "text/html; charset=hex")  # a codec of Python that makes no text
    with serving(lambda *_: hound(CAPTIONS[0], 1)._replace(headers=(header,))) as server:
        assert command.main(words(captions, tmp_path / "hp", server.url)) == 0


def test_an_error_of_many_megabytes_is_one_line(tmp_path, captions, capsys):
    with serving(lambda *_: fails(400, "no " * 700_000)) as server:
        assert command.main(words(captions, tmp_path / "hp", server.url)) == 2
    assert len(capsys.readouterr().err) < 1_000


KEY = "sk-proj/0123456789+secret"
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
ECHOES = {
    "an error": fails(400, f"wrong field beside {KEY}"),
    "a long error": fails(400, "x" * 290 + KEY),  # of which 300 letters are shown
    "a refused key": fails(401, f"Incorrect API key provided: {KEY}"),
    "an error in a URL": fails(400, "see http://a.b/?key=sk-proj%2F0123456789%2Bsecret"),
    "a page": Reply(200, f"<html>{KEY}</html>"),
    "a long page": Reply(200, "x" * 190 + KEY),
    "escaped letters": Reply(400, f'{{"error": {{"message": "{ESCAPED}"}}}}'),
    "a wrong type": says([KEY]),
}


@pytest.mark.parametrize("case", ECHOES)
def test_the_key_is_in_no_message(tmp_path, captions, capsys, monkeypatch, case):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(lambda *_: ECHOES[case]) as server:
        arguments = words(captions, tmp_path / "hp", server.url, "--retries", "0")
        assert command.main(arguments) in (2, 3)
    error = capsys.readouterr().err
    assert "sk-proj" not in error
    assert error.startswith("error: ")


def test_the_key_is_in_no_message_about_an_address(tmp_path, captions, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for url in (f"ftp://a.b/{KEY}", f"http://127.0.0.1:1/{KEY}/v1"):
        assert command.main(words(captions, tmp_path / "hp", url, "--retries", "0")) in (2, 30)
        error = capsys.readouterr().err
        assert "[key]" in error
        assert "sk-proj" not in error
    assert summary(tmp_path / "hp")["endpoints"] == ["http://127.0.0.1:1/[key]/v1"]


def test_the_key_is_in_no_answer(tmp_path, captions, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    out = tmp_path / "hp"
    with serving(lambda *_: says(f"a hound of {KEY}")) as server:
        assert command.main(words(captions, out, server.url)) == 0
    assert positives(out)[0] == "a hound of [key]"
    assert all("sk-proj" not in path.read_text() for path in out.iterdir())


def test_a_placeholder_for_a_key_is_an_ordinary_word(tmp_path, captions, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "hound")
    with serving(hound) as server:
        assert command.main(words(captions, tmp_path / "hp", server.url)) == 0
    assert positives(tmp_path / "hp")[0] == "a hound and cat number 0"
