"""Decoding and scores of options: loops equal forward passes, and run as often as they should."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import small_models
from tests.support.compilations import apply
from tests.support.marks import slow_but
from vlc_jax.models import continuation, decode, lm

NEVER = np.array([-1], np.int32)


@pytest.fixture(scope="module")
def model():
    decoder = lm.build("tiny")
    params = small_models.drawn(functools.partial(lm.init, decoder), scale=0.3)
    params["head"] *= 6  # sure of some tokens, of others not
    return decoder, jax.device_put(params)


def traced_anew(model):
    """The same model, of which no program is compiled yet."""
    return model[0].clone(epsilon=model[0].epsilon * (1 + 1e-7)), model[1]


@functools.partial(jax.jit, static_argnums=0)
def embed(decoder, params, ids):
    return decoder.apply({"params": params}, ids, method="embed")


def prompt(model, seed=0, lengths=(4, 7, 1), padding="left"):
    """Prompts of these lengths, and their ids."""
    rng, longest = np.random.default_rng(seed), max(lengths)
    rows = [rng.integers(0, 128, length) for length in lengths]
    ids, valid = np.zeros((len(rows), longest), np.int32), np.zeros((len(rows), longest), bool)
    for i, row in enumerate(rows):
        where = slice(longest - len(row), None) if padding == "left" else slice(len(row))
        ids[i, where], valid[i, where] = row, True
    return continuation.Prompt(np.asarray(embed(*model, ids)), valid), rows


@functools.partial(jax.jit, static_argnums=0)
def log_probabilities(decoder, params, ids):
    logits = decoder.apply({"params": params}, ids, jnp.ones(ids.shape, bool), method="text_logits")
    return jax.nn.log_softmax(logits)


def after(model, row):
    """Log probabilities of what follows a text, padded on the right lest each length compile."""
    ids = np.zeros((1, 24), np.int32)
    ids[0, : len(row)] = row
    return np.asarray(log_probabilities(*model, ids), np.float64)[0, len(row) - 1]


def naive(model, rows, steps, choose=lambda t, seen: seen.argmax()):
    chosen = []
    for row in rows:
        text = list(row)
        for t in range(steps):
            text.append(int(choose(t, after(model, text))))
        chosen.append(text[len(row) :])
    return np.array(chosen)


@pytest.mark.parametrize("padding", slow_but(("right",), ("left", "right")))
def test_greedy_equals_forward_passes(model, padding):
    given, rows = prompt(model, padding=padding)
    ids = decode.generate(*model, (given,), NEVER, steps=8)
    np.testing.assert_array_equal(ids, naive(model, rows, 8))


def test_a_row_ends_at_any_terminator_and_is_padded_by_the_first(model):
    given, _ = prompt(model)
    free = np.asarray(decode.generate(*model, (given,), NEVER, steps=8))
    ends = np.array([127, free[0, 3], free[1, 1]], np.int32)
    ids = np.asarray(decode.generate(*model, (given,), ends, steps=8))
    for found, row in zip(ids, free, strict=True):
        stop = next((i for i, x in enumerate(row) if x in ends), 7)
        np.testing.assert_array_equal(found[: stop + 1], row[: stop + 1])
        assert (found[stop + 1 :] == 127).all()
    assert (ids == 127).any()


def test_the_loop_ends_with_the_last_row(model, monkeypatch):
    given, _ = prompt(model)
    first = np.asarray(decode.generate(*model, (given,), NEVER, steps=1))[:, 0]
    steps = []

    def counted(decoder, params, *arguments, **options):
        if options.get("method") == "embed":
            jax.debug.callback(lambda: steps.append(1))
        return decoder.apply({"params": params}, *arguments, **options)

    monkeypatch.setattr(decode, "apply", counted)
    model = traced_anew(model)
    decode.generate(*model, (given,), first, steps=6).block_until_ready()
    assert len(steps) == 0
    decode.generate(*model, (given,), np.array([-1, -1, -1], np.int32), steps=6).block_until_ready()
    jax.effects_barrier()
    assert len(steps) == 5


def test_programs_are_compiled_once_per_shape_and_steps(model):
    before = decode.generate._cache_size()
    for seed, end in itertools.product((1, 2), (3, 4)):
        decode.generate(
            *model, (prompt(model, seed, (3, 5))[0],), np.array([end], np.int32), steps=3
        )
    assert decode.generate._cache_size() == before + 1
    decode.generate(*model, (prompt(model, 1, (3, 5))[0],), NEVER, steps=4)
    assert decode.generate._cache_size() == before + 2


def m3id(model, seed=0, **changes):
    given, rows = prompt(model, seed)
    blind, blind_rows = prompt(model, seed + 10, (2, 3, 1))
    numbers = decode.M3ID(**{"decay": 0.3} | changes)
    ids = decode.generate(*model, (given, blind), NEVER, numbers, steps=8)
    return np.asarray(ids), rows, blind_rows, given


@pytest.mark.parametrize("first_step", [0, 1])
def test_m3id_is_its_formula(model, first_step):
    ids, rows, blind_rows, _ = m3id(model, first_step=first_step)
    gates = []
    for found, seen, unseen in zip(ids, map(list, rows), map(list, blind_rows), strict=True):
        for t, token in enumerate(found):
            with_image, without = after(model, seen), after(model, unseen)
            gates.append(with_image.max() < np.log(0.6))
            # as the paper writes it: (1 - e^-x) / e^-x
            x = 0.3 * (t + first_step)
            weight = (1 - np.exp(-x)) / np.exp(-x) if gates[-1] else 0.0
            assert token == (with_image + weight * (with_image - without)).argmax()
            seen.append(token)
            unseen.append(token)
    assert 0 < sum(gates) < len(gates)
    assert (m3id(model, first_step=1 - first_step)[0] != ids).any()


def test_the_weight_of_m3id_is_that_of_the_paper():
    x = 0.15 * np.arange(1, 24)
    weight = jax.jit(decode.m3id_weight)
    found = [float(weight(decode.M3ID(first_step=0), t)) for t in range(24)]
    assert found[0] == 0
    np.testing.assert_allclose(found[1:], (1 - np.exp(-x)) / np.exp(-x), rtol=1e-6)
    later = [float(weight(decode.M3ID(first_step=1), t)) for t in range(23)]
    np.testing.assert_array_equal(later, found[1:])


def test_m3id_without_correction_is_greedy(model):
    _, _, _, given = m3id(model)
    expected = np.asarray(decode.generate(*model, (given,), NEVER, steps=8))
    for changes in ({"decay": 0.0}, {"alpha": 0.0}):
        np.testing.assert_array_equal(m3id(model, **changes)[0], expected)
    assert (m3id(model, alpha=1.0)[0] != expected).any()


@pytest.mark.parametrize("padding", slow_but(("right",), ("left", "right")))
def test_a_stream_is_the_answer_token_by_token(model, padding):
    given, _ = prompt(model, padding=padding)
    blind, _ = prompt(model, 10, (2, 3, 1))
    row = [continuation.Prompt(x.embeds[1:2], x.valid[1:2]) for x in (given, blind)]
    numbers = decode.M3ID(decay=0.3)
    for prompts, whole in (
        (row[:1], decode.generate(*model, (given,), NEVER, steps=8)),
        (row, decode.generate(*model, (given, blind), NEVER, numbers, steps=8)),
    ):
        more = numbers if len(prompts) == 2 else None
        ids = np.asarray(whole)[1]
        never = jax.device_put(np.repeat(NEVER, 3))
        found = list(decode.stream(*model, tuple(prompts), never, more, steps=8))
        np.testing.assert_array_equal(found, ids)
        end = jax.device_put(np.array([-1, ids[3], -1]))
        found = list(decode.stream(*model, tuple(prompts), end, more, steps=8))
        np.testing.assert_array_equal(found, ids[: list(ids).index(ids[3])])


OPTIONS = np.array([[[5, 6, 7], [8, 0, 0], [9, 10, 0]]] * 3, np.int32)
VALID = np.array([[[1, 1, 1], [1, 0, 0], [1, 1, 0]]] * 3, bool)


@functools.partial(jax.jit, static_argnums=0)
def option_scores(decoder, params, given, options, valid):
    """Log probabilities of options, and the numbers of their tokens."""
    found = continuation.log_probabilities(decoder, params, given, options)
    return jnp.where(valid, found, 0.0).sum(axis=2), valid.sum(axis=2)


@pytest.mark.parametrize("padding", slow_but(("right",), ("left", "right")))
def test_option_scores_are_sums_of_log_probabilities(model, padding):
    given, rows = prompt(model, padding=padding)
    scores, counts = jax.device_get(option_scores(*model, given, OPTIONS, VALID))
    for i, row in enumerate(rows):
        for j in range(3):
            option = list(OPTIONS[i, j][VALID[i, j]])
            text = list(row)
            expected = 0.0
            for token in option:
                expected += after(model, text)[token]
                text.append(token)
            assert counts[i, j] == len(option)
            np.testing.assert_allclose(scores[i, j], expected, rtol=1e-5)


def test_scores_of_one_token_are_the_next_tokens_probability(model):
    given, rows = prompt(model)
    options = np.broadcast_to(np.arange(4, dtype=np.int32)[None, :, None], (3, 4, 1))
    scores, _ = option_scores(*model, given, options, np.ones(options.shape, bool))
    expected = np.stack([after(model, list(row))[:4] for row in rows])
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_a_prompt_runs_once_for_all_options(model, monkeypatch):
    given, _ = prompt(model)
    prefill, calls = continuation.prefill, []

    def counted(*arguments):
        jax.debug.callback(lambda: calls.append(1))  # when it runs, in a loop at each turn
        return prefill(*arguments)

    monkeypatch.setattr(continuation, "prefill", counted)
    option_scores(*traced_anew(model), given, OPTIONS, VALID)
    jax.effects_barrier()
    assert len(calls) == 1


def test_option_scores_do_not_depend_on_other_options_or_rows(model):
    given, _ = prompt(model)
    whole, _ = jax.device_get(option_scores(*model, given, OPTIONS, VALID))
    part = continuation.Prompt(given.embeds[1:2], given.valid[1:2])
    one, _ = jax.device_get(option_scores(*model, part, OPTIONS[1:2, :1], VALID[1:2, :1]))
    np.testing.assert_allclose(one[0, 0], whole[1, 0], rtol=1e-5)


def test_a_prefix_is_read_in_both_directions_by_all(model):
    given, _ = prompt(model)
    both = given._replace(prefix=given.valid)
    causal, _ = jax.device_get(option_scores(*model, given, OPTIONS, VALID))
    found, _ = jax.device_get(option_scores(*model, both, OPTIONS, VALID))
    decoder, params = model

    def run(module, ids, valid):
        embeds = jnp.concatenate([given.embeds, module.embed(ids)], axis=1)
        valid = jnp.concatenate([given.valid, valid], axis=1)
        prefix = jnp.pad(given.valid, ((0, 0), (0, 3)))
        logits = module.logits(module(embeds, valid, prefix=prefix)[0])[:, 6:-1]
        return continuation.token_log_probabilities(logits, ids).sum(axis=1)

    expected = apply(decoder, {"params": params}, OPTIONS[:, 0], VALID[:, 0], method=run)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-4)
    assert np.abs(found - causal)[:2].max() > 0.1
