"""Texts written by a language model in this process, of a tiny Llama in a folder."""

import functools
import json

import jax
import numpy as np
import pytest
import tokenizers

from tests.support import helpers, llava_folder
from vlc_jax.encode import complete
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.hard_texts.llm.answers import Question
from vlc_jax.models import lm
from vlc_jax.tools import write_texts
from vlc_jax.weights import llava

LM = llava_folder.LM | {"vocab": 258}
STEPS = 12
CAPTIONS = ["a dog", "a cat and a dog on a mat", "two birds", "a red bus", "a dog", "", "one"]
LINE, TEXT = ("\n", "</s>"), ("</s>",)  # what ends an answer


def write_tokenizer(folder):
    """Bytes, as Llama 3 writes them; a text starts with <s>."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=258,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    library.train_from_iterator([], trainer)
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    library.save(str(folder / "tokenizer.json"))
    return library


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Llama that writes letters, ends of lines and ends of texts."""
    folder = tmp_path_factory.mktemp("llama")
    library = write_tokenizer(folder)
    sizes = {"family": "llama", "lm": LM}
    shapes = jax.eval_shape(functools.partial(lm.init, lm.from_sizes(LM)), jax.random.key(0))
    rng = np.random.default_rng(3)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    written = [library.token_to_id(token) for token in [*"abcdefghijklmnop", "Ġ", "Ċ", "</s>"]]
    mask = np.isin(np.arange(258), written)
    llava.save({"lm": params | {"head": params["head"] * mask}}, sizes, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 1}))
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


def ask(model, captions=CAPTIONS, **fields):
    fields = {"max_tokens": STEPS, "stop": ["\n"], **fields}
    questions = [Question(k, f"Input: {text}\nOutput:", fields) for k, text in enumerate(captions)]
    found = {}

    def store(index, answer):
        assert index not in found
        found[index] = answer

    complete.completing(model, 3)(iter(questions), store)
    assert len(found) == len(questions)
    return [found[k] for k in range(len(found))]


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
    assert [answer.text for answer in ask(model, stop=[])] == expected
    stopped = [answer.text for answer in ask(model, stop=["h"])]
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
        {"family": "llama", "lm": LM},
        other,
    )
    write_tokenizer(other)
    with pytest.raises(WeightsError, match=r"neither config.json nor generation_config.json has"):
        write_texts.load(other)
    (other / "generation_config.json").write_text('{"eos_token_id": [1, 0]}')
    again = write_texts.load(other)
    assert (again.ends, again.name.partition("@")[0]) == ([1, 0], folder.name)
    assert again.name != model.name


def words(folder, captions, out, *options):
    prompt = out.parent / "prompt.txt"
    prompt.write_text("Input: {caption}\nOutput:")
    fixed = ["replace", captions, "--decoder", folder, "--out", out, "--prompt", prompt]
    return [*map(str, [*fixed, "--max-tokens", STEPS, "--batch-size", 3]), *options]


def test_the_command_goes_on_and_its_texts_are_those_of_one_run(folder, model, tmp_path, capsys):
    captions, asked = tmp_path / "captions.txt", []
    captions.write_text("\n".join(CAPTIONS) + "\n")
    write_texts.main(words(folder, captions, tmp_path / "once"))
    once = (tmp_path / "once" / "replace_hp.jsonl").read_text()
    assert once.count("\n") == len(CAPTIONS)
    said = [alone(model, text)[0] for text in CAPTIONS if text]
    raw = {row["line"]: row["text"] for row in helpers.rows(tmp_path / "once" / "raw.jsonl")}
    assert [text for _, text in sorted(raw.items())] == said
    for limit in (("--limit", "3"), ()):
        write_texts.main(words(folder, captions, tmp_path / "twice", *limit))
        asked.append(len(helpers.rows(tmp_path / "twice" / "raw.jsonl")))
    assert asked == [3, 6]  # the empty caption is not asked about
    assert (tmp_path / "twice" / "replace_hp.jsonl").read_text() == once
    told = json.loads((tmp_path / "twice" / "summary.json").read_text())
    assert told["models_that_answered"] == {model.name: 6}
    assert told["request"]["fields"] == {"max_tokens": STEPS, "stop": ["\n"], "decoding": "greedy"}
    assert "captions have texts" in capsys.readouterr().out


def test_another_model_in_the_folder_of_a_run_is_refused(folder, tmp_path, capsys):
    captions = tmp_path / "captions.txt"
    captions.write_text("a dog\n")
    write_texts.main(words(folder, captions, tmp_path / "out"))
    with pytest.raises(SystemExit) as ended:
        write_texts.main(words(folder, captions, tmp_path / "out", "--dtype", "bfloat16"))
    assert ended.value.code == 2
    assert "was begun with another request: model was" in capsys.readouterr().err


def test_wrong_captions_are_said_before_weights_are_read(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        write_texts.main(words("no_folder", tmp_path / "no.jsonl", tmp_path / "out"))
    assert ended.value.code == 2
    assert "no file" in capsys.readouterr().err
