"""Texts written by a language model in this process, of a tiny Llama in a folder."""

import fcntl
import functools

import jax
import numpy as np
import pytest

from tests.support import batches, helpers, tiny_llama
from vlc_jax.encode import complete
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.tools import write_texts
from vlc_jax.weights import llava

STEPS = 12
CAPTIONS = ["a dog", "a cat and a dog on a mat", "two birds", "a red bus", "a dog", "", "one"]
LINE, TEXT = ("\n", "</s>"), ("</s>",)  # what ends an answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    tiny_llama.write(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return write_texts.load(folder)


@functools.cache
def whole(decoder):
    """Logits of a text, in one pass and without a cache."""
    return jax.jit(
        lambda params, *text: decoder.apply({"params": params}, *text, method="text_logits")
    )


def alone(model, caption, ends=LINE):
    """The likeliest letters one after the other, each from a pass over the whole text."""
    ids, said = model.tokenizer.encode(f"Input: {caption}\nOutput:", has_start=True), []
    stops = [model.tokenizer.id_of({"\n": "Ċ"}.get(end, end)) for end in ends]
    while len(said) < STEPS and (not said or said[-1] not in stops):
        row = np.zeros((1, 128), np.int32)
        row[0, : len(ids + said)] = ids + said
        logits = whole(model.decoder)(model.params, row, row >= 0)
        said.append(int(np.asarray(logits)[0, len(ids + said) - 1].argmax()))
    text, is_end = model.tokenizer.decode(said), said[-1] in stops
    return text.partition(ends[0])[0], "stop" if is_end else "length", len(said)


def ask(model, captions=CAPTIONS, stop=("\n",)):
    prompts = {str(k): f"Input: {text}\nOutput:" for k, text in enumerate(captions)}
    questions = [complete.Question(k, text, STEPS, stop) for k, text in prompts.items()]
    found = [*complete.answers(model, questions, 3)]
    assert sorted(name for name, _ in found) == [*prompts]
    return [dict(found)[name] for name in prompts]


def test_an_answer_is_the_likeliest_text_whatever_its_batch(model):
    expected = [alone(model, text) for text in CAPTIONS]
    assert len({*expected}) > 4
    assert {finish for _, finish, _ in expected} == {"stop", "length"}
    found = ask(model)
    assert [(each.text, each.finish, each.completion_tokens) for each in found] == expected
    lengths = [len(model.tokenizer.encode(f"Input: {text}\nOutput:", True)) for text in CAPTIONS]
    assert [answer.prompt_tokens for answer in found] == lengths
    assert len({-(-length // 32) for length in lengths}) == 2  # so of two padded lengths


def test_an_answer_of_several_lines_ends_before_its_stops(model):
    expected = [alone(model, text, TEXT)[0] for text in CAPTIONS]
    assert any("\n" in text for text in expected)
    assert [answer.text for answer in ask(model, stop=())] == expected
    stopped = [answer.text for answer in ask(model, stop=("h",))]
    assert stopped == [text.partition("h")[0] for text in expected] != expected


def test_a_prompt_without_room_for_an_answer_has_none(model):
    found = ask(model._replace(positions=32 + STEPS), captions=["a dog", "long " * 20])
    assert [answer.finish for answer in found][1] == "too_long"
    assert found[0].text == ask(model, captions=["a dog"])[0].text


def test_another_models_tokenizer_is_refused(model):
    small = model._replace(decoder=model.decoder.clone(vocab=200))
    with pytest.raises(UsageError, match="258 tokens and the model only 200"):
        ask(small)


def test_a_name_tells_parameters_and_dtypes_apart(folder, model, tmp_path):
    assert write_texts.load(folder).name == model.name
    assert model.name.startswith(f"{folder.name}@")
    assert write_texts.load(folder, "bfloat16").name != model.name
    other = tmp_path / folder.name
    llava.save(
        {"lm": jax.tree.map(lambda x: 2 * np.asarray(x), model.params)},
        {"family": "llama", "lm": tiny_llama.LM},
        other,
    )
    tiny_llama.write_tokenizer(other)
    with pytest.raises(WeightsError, match=r"neither config.json nor generation_config.json has"):
        write_texts.load(other)
    (other / "generation_config.json").write_text('{"eos_token_id": [1, 0]}')
    again = write_texts.load(other)
    assert (again.ends, again.name.partition("@")[0]) == ([1, 0], folder.name)
    assert again.name != model.name


@pytest.fixture
def batch(tmp_path):
    """The requests of a folder that has been asked for."""
    captions, prompt = tmp_path / "captions.txt", tmp_path / "prompt.txt"
    captions.write_text("\n".join(CAPTIONS) + "\n")
    prompt.write_text("Input: {caption}\nOutput:")
    options = ("--form", "text", "--temperature", "0", "--max-tokens", str(STEPS))
    assert batches.ask(captions, tmp_path / "hp", *options, "--prompt", str(prompt)) == 0
    return tmp_path / "hp" / "batch.jsonl"


def run(folder, batch, *options, out=None):
    """Answers a batch; returns the rows of the answers."""
    out = out or batch.with_name("answers.jsonl")
    fixed = [batch, "--decoder", folder, "--out", out, "--batch-size", 3]
    write_texts.main([*map(str, fixed), *options])
    return helpers.rows(out)


def refused(capsys, code, *arguments, **options):
    """The error of a call that ends with this code."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments, **options)
    assert ended.value.code == code
    return capsys.readouterr().err


def test_a_killed_command_continues_and_answers_nothing_twice(
    folder, model, batch, capsys, monkeypatch
):
    out, answers, kept = batch.with_name("answers.jsonl"), complete.answers, []
    once = {row["custom_id"]: row for row in run(folder, batch)}
    assert len(once) == 6  # the empty caption is not asked about
    out.unlink()

    def killed(*arguments):
        for number, answer in enumerate(answers(*arguments)):
            if number == 4:
                kept.extend(helpers.rows(out))  # on the disk before the next one
                raise KeyboardInterrupt
            yield answer

    monkeypatch.setattr(complete, "answers", killed)
    with pytest.raises(KeyboardInterrupt):
        run(folder, batch)
    monkeypatch.undo()
    with out.open("a") as file:
        file.write('{"custom_id": "repl')  # as a kill in the middle of a write leaves it
    again = run(folder, batch)
    assert (len(kept), again[:4]) == (4, kept)
    assert {row["custom_id"]: row for row in again} == once
    assert len(again) == 6
    assert batches.read(batch.parent, out) == 0
    said = {text: alone(model, text)[0] for text in CAPTIONS if text}
    rows = {name: row["response"]["body"]["choices"][0]["text"] for name, row in once.items()}
    prompts = {row["custom_id"]: batches.caption_of(row) for row in helpers.rows(batch)}
    assert {prompts[name]: text for name, text in rows.items()} == said
    told = batches.summary(batch.parent)
    assert told["models_that_answered"] == {model.name: 6}
    assert told["missing"]["empty caption"] == 1
    assert len(batches.positives(batch.parent)) == len(CAPTIONS)
    # after all the same: nothing is answered any more
    assert run(folder, batch) == again
    assert "6 requests are answered" in capsys.readouterr().out


def test_answers_of_another_model_or_request_are_not_continued(folder, batch, capsys, tmp_path):
    out = batch.with_name("answers.jsonl")
    before = run(folder, batch)
    error = refused(capsys, 2, folder, batch, "--dtype", "bfloat16")
    assert f"{out} was begun with another model: row 1 has Answer(text=" in error
    other = batches.save(tmp_path / "other.jsonl", helpers.rows(batch)[0] | {"custom_id": "x-1"})
    assert "has answers to another request" in refused(capsys, 2, folder, other, out=out)
    with out.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another process writes to" in refused(capsys, 2, folder, batch)
    assert helpers.rows(out) == before
    batches.save(out, *before[:2], {"line": 1})
    assert "row 3 of" in refused(capsys, 3, folder, batch)


BODY = {"model": "tiny", "prompt": "a", "max_tokens": 3, "temperature": 0}
REQUEST = {"custom_id": "a-1", "method": "POST", "url": "/v1/completions", "body": BODY}


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        ([], 3, "holds no requests"),
        ([REQUEST | {"url": "/v1/chat/completions"}], 2, "ask with --form text, for plain texts"),
        ([REQUEST | {"body": BODY | {"temperature": 0.6}}], 2, "ask with --temperature 0"),
        ([REQUEST | {"body": BODY | {"top_k": 3}}], 2, "does not know the field 'top_k'"),
        ([REQUEST, REQUEST], 3, "row 2 of {} is no request (ValueError('custom_id is there twice"),
        ([REQUEST | {"body": BODY | {"max_tokens": "3"}}], 3, "row 1 of {} is no request (TypeErr"),
        ([batches.reply("a-1", "b")], 3, "row 1 of {} is no request (KeyError('body'))"),
    ],
)
def test_a_wrong_batch_is_refused_before_weights_are_read(tmp_path, capsys, rows, code, said):
    batch = batches.save(tmp_path / "batch.jsonl", *rows)
    error = refused(capsys, code, "no_folder", batch)
    assert said.format(batch) in error
    assert error.count("\n") == 1
    assert not batch.with_name("answers.jsonl").exists()
