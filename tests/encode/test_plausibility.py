"""Log-probabilities of texts under a tiny Llama, and the command that compares captions by them."""

import functools
import json

import jax
import numpy as np
import pytest

from tests.support import small_models
from tests.support.sets import sugarcrepe
from vlc_jax.encode.plausibility import plausibilities
from vlc_jax.models import lm
from vlc_jax.tools import plausibility, write_texts
from vlc_jax.weights import llava

TEXTS = ["a cat", "", "a plant on 2 cats", "a cat"]


@pytest.fixture(scope="module", params=["<|endoftext|>", "none"])
def folder(request, tmp_path_factory):
    """A Llama of random weights over letters; param: its start token."""
    folder = tmp_path_factory.mktemp("llama")
    library = small_models.byte_pairs([], [request.param], 257)
    library.save(str(folder / "tokenizer.json"))
    sizes = {"family": "llama", "lm": small_models.LM | {"vocab": 257}}
    params = small_models.drawn(functools.partial(lm.init, lm.from_sizes(sizes["lm"])))
    llava.save({"lm": params}, sizes, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 0}))
    return folder


def test_a_text_has_the_sum_over_its_tokens_whatever_its_batch(folder):
    """Beside one pass per text, without a mask."""
    model = write_texts.load(folder)
    whole = jax.jit(
        lambda params, *text: model.decoder.apply({"params": params}, *text, method="text_logits")
    )
    found = plausibilities(model, TEXTS, batch_size=3)
    has_start = "none" not in model.tokenizer
    for text, each in zip(TEXTS, found, strict=True):
        ids = ([0] if has_start else []) + model.tokenizer.encode(text)
        total = 0.0
        if len(ids) > 1:
            row = np.zeros((1, 20), np.int32)  # no token sees what is behind it
            row[0, : len(ids)] = ids
            logits = np.asarray(whole(model.params, row, row >= 0)[0], np.float64)
            logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
            total = sum(logits[at, token] for at, token in enumerate(ids[1:]))
        assert each.tokens == max(len(ids) - 1, 0)
        np.testing.assert_allclose(each.total, total, rtol=1e-5)
    assert found[0] == found[-1]


def test_the_command_goes_on_where_it_was_stopped(folder, tmp_path, capsys, monkeypatch):
    sugarcrepe.write(tmp_path)
    out = tmp_path / "out.jsonl"
    words = ["--decoder", str(folder), "--root", str(tmp_path), "--sets", "sugarcrepe"]
    plausibility.main([*words, "--out", str(out)])
    table = capsys.readouterr().out
    lines = out.read_bytes().splitlines(keepends=True)
    texts = [json.loads(line)[1] for line in lines]
    assert len(texts) == len(set(texts)) == 21  # of 14 cases, of which two have one caption
    assert "sugarcrepe/swap_obj" in table
    out.write_bytes(b"".join(lines[:-3]) + lines[-3][:9])
    asked = []

    def counting(model, texts, *others):
        asked.extend(texts)
        return plausibilities(model, texts, *others)

    monkeypatch.setattr(plausibility, "plausibilities", counting)
    plausibility.main([*words, "--out", str(out)])
    assert capsys.readouterr().out == table
    assert sorted(asked) == sorted(texts[-3:])
    out.write_text(json.dumps(["another", "a", 0.0, 1]) + "\n")
    with pytest.raises(SystemExit) as ended:
        plausibility.main([*words, "--out", str(out)])
    assert ended.value.code == 2
    assert "of another, not of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "out", "message"),
    [("cola", "x.jsonl", "cola has an image for each caption: both are correct"),
     ("sugarcrepe", ".", "is a folder; name a file")],
)  # fmt: skip
def test_a_request_without_an_answer_is_refused_at_once(name, out, message, tmp_path, capsys):
    words = ["--decoder", "none", "--root", str(tmp_path), "--sets", name]
    with pytest.raises(SystemExit) as ended:
        plausibility.main([*words, "--out", str(tmp_path / out)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_shares_count_ties_as_if_broken_at_random():
    scores = {"a": 1.0, "b": 1.0, "c": 0.0}
    assert plausibility._share([("a", "c"), ("c", "a")], scores).startswith("50.0 ")
    assert plausibility._share([("a", "b")], scores).startswith("50.0 ")
    assert plausibility._share([("a", "b", "c")], {**scores, "c": 2.0}).startswith("0.0 ")
