"""Hard positives from a real local endpoint: order, retries, concurrency, resume, errors."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.support import helpers
from tests.support.chat_runs import CAPTIONS, ask, hound, positives, summary, words
from tests.support.chat_server import Reply, fails, says, serving
from vlc_jax.input_pipeline.commands import write_hard_texts as command


def start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "vlc_jax.input_pipeline.commands.write_hard_texts", *arguments],
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

    server = ask(answer, captions, "--price-in", "2", "--price-out", "10")
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

    def swapped(caption, n):
        return says(f"{caption} swapped")

    server = ask(swapped, captions, "--column", "title", kind="swap")
    assert set(server.asked) == set(fits)
    assert positives(tmp_path / "hp", "swap") == [f"{text} swapped" for text in fits] + ["None"] * 3
    assert summary(tmp_path / "hp")["missing"] == {'no "and"': 2, "15 words or more": 1}


def test_what_is_sent(tmp_path, captions, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret\n")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Say {this} otherwise.\nInput: {caption}\n")
    options = ("--option", "top_k=50", "--option", "temperature=null", "--seed", "7")
    server = ask(hound, captions, *options, "--prompt", str(prompt))
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


@pytest.mark.parametrize("first", [fails(429, "slow down"), fails(503, "busy"), Reply(0, "")])
def test_a_passing_failure_is_tried_again(tmp_path, captions, first):
    def answer(caption, n):
        return first if n == 1 and caption == CAPTIONS[4] else hound(caption, n)

    server = ask(answer, captions)
    assert server.asked == dict.fromkeys(CAPTIONS, 1) | {CAPTIONS[4]: 2}
    assert "None" not in positives(tmp_path / "hp")


def test_as_many_questions_as_asked_for_are_under_way(tmp_path, captions):
    together = threading.Barrier(4)

    def answer(caption, n):
        together.wait(timeout=20)  # broken unless four are there at a time
        return hound(caption, n)

    server = ask(answer, captions, "--concurrency", "4", "--retries", "0")
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

    ask(answer, captions)
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
        (Reply(200, says("a").body | {"usage": {"prompt_tokens": 10**400}}), 3, "numbers of tok"),
        (Reply(200, says("a").body | {"usage": {"prompt_tokens": -1}}), 3, "numbers of tokens"),
        (Reply(200, "[" * 100_000), 3, "does not answer with a chat completion"),
        (Reply(0, ""), 30, "cannot reach http://127.0.0.1"),
    ],
)
def test_a_wrong_answer_ends_the_run_with_one_clear_line(
    tmp_path, captions, capsys, reply, code, said
):
    ask(lambda *_: reply, captions, "--retries", "0", code=code)
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_nobody_there_is_said_at_once(tmp_path, captions, capsys):
    with serving(hound) as server:
        url = server.url
    begun = time.monotonic()
    assert command.main(words(captions, tmp_path / "hp", url)) == 30
    assert f"cannot reach {url} after 1 try" in capsys.readouterr().err
    assert time.monotonic() - begun < 10  # eight retries would take 40 seconds


def test_the_timeout_is_for_the_whole_answer(tmp_path, captions, capsys):
    dripping = hound(CAPTIONS[0], 1)._replace(pause=0.05)  # all of it takes 15 seconds
    options = ("--retries", "1", "--timeout", "0.3", "--limit", "1")
    server = ask(lambda *_: dripping, captions, *options, code=30)
    assert server.asked == {CAPTIONS[0]: 2}
    assert "gives no answer within 0.3 s after 2 tries" in capsys.readouterr().err


def test_an_answer_is_utf8_whatever_its_header_says(tmp_path, captions):
    header = ("content-type", "text/html; charset=hex")  # a codec of Python that makes no text
    ask(lambda *_: hound(CAPTIONS[0], 1)._replace(headers=(header,)), captions)


def test_an_error_of_many_megabytes_is_one_line(tmp_path, captions, capsys):
    ask(lambda *_: fails(400, "no " * 700_000), captions, code=2)
    assert len(capsys.readouterr().err) < 1_000


KEY = "sk-proj/0123456789+secret"
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
ECHOES = {
    "an error": fails(400, f"wrong field beside {KEY}"),
    "a long error": fails(400, "x" * 290 + KEY),  # of which 300 letters are shown
    "an error in a URL": fails(400, "see http://a.b/?key=sk-proj%2F0123456789%2Bsecret"),
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
    ask(lambda *_: says(f"a hound of {KEY}"), captions)
    assert positives(out)[0] == "a hound of [key]"
    assert all("sk-proj" not in path.read_text() for path in out.iterdir())


def test_a_placeholder_for_a_key_is_an_ordinary_word(tmp_path, captions, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "hound")
    ask(hound, captions)
    assert positives(tmp_path / "hp")[0] == "a hound and cat number 0"
