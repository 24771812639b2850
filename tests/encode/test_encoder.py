"""Features of evaluation: each distinct image and text once, the same bits whatever the batches."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from tests.encode.conftest import with_evaluation, with_parameters
from tests.support import tiny
from vlc_jax import evaluators
from vlc_jax.configs.scenes import captioner
from vlc_jax.encode import batches, encoder
from vlc_jax.encode.batches import BatchEncoder, Lengths, lengths_up_to, short_lengths, text_lengths
from vlc_jax.encode.encoder import Encoder
from vlc_jax.encode.interrupt import Interrupt
from vlc_jax.errors import DivergedError, PreemptedError
from vlc_jax.evaluators.scorer import take
from vlc_jax.input_pipeline.benchmarks import PROTOCOL_OF, READERS, Benchmark, Case
from vlc_jax.models import parameters
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.setup import resolve
from vlc_jax.types import ImageFeatures, TextFeatures


@pytest.fixture
def encoded(monkeypatch):
    """The items that were encoded, in their order."""
    items, batches = [], BatchEncoder.batches

    def counted(encoder, variables, asked):
        items.extend(asked)
        return batches(encoder, variables, asked)

    monkeypatch.setattr(BatchEncoder, "batches", counted)
    return items


def on_one_device(setup):
    names, types = setup.mesh.axis_names, setup.mesh.axis_types
    return setup._replace(mesh=jax.make_mesh((1, 1), names, types, devices=jax.devices()[:1]))


@pytest.mark.parametrize("on_host", [True, False])
def test_parameters_that_are_not_finite_are_named_first(run, monkeypatch, on_host):
    monkeypatch.setattr(parameters, "_are_on_host", lambda leaves: on_host)
    setup, variables = run
    for value in (np.nan, -np.inf):
        params = {**variables["params"], "logit_scale": np.full((3,), value, np.float32)}
        with pytest.raises(DivergedError, match="must be finite; 3 of 3 values of logit_scale"):
            Encoder(setup).scorer({**variables, "params": params})


def in_batches_of_eight(setup):
    return setup._replace(evaluation=setup.evaluation._replace(batch_size=8))


def test_embeddings_that_are_not_finite_are_refused(run):
    def method(model, rows):
        return TextFeatures(jnp.where(rows["text"] == 2, jnp.inf, 0.5 * rows["text"]))

    setup = in_batches_of_eight(run[0])
    encode = BatchEncoder(setup, method, lambda rows: {"text": np.array(rows)})
    rows = [[0, 0, 0]] * 11
    assert encode({"params": {}}, rows).pooled.shape == (11, 3)
    rows[9] = [0, 2, 0]
    with pytest.raises(DivergedError, match="1 of a batch of 3 are not"):
        encode({"params": {}}, rows)


def test_large_images_have_fewer_rows_in_a_batch(run):
    setup, heights = in_batches_of_eight(on_one_device(run[0])), {0: 9, 1: 3, 2: 5}

    def load(items):
        images = np.array([np.full((12, 2), item) for item in items])
        return {"image": images, "question": np.tile(np.arange(7), (len(items), 1))}

    def height(rows):
        return [heights[int(image[0, 0]) % 3] for image in rows["image"]]

    encode = BatchEncoder(setup, len, load, lengths=Lengths(height, 4))
    seen, rows = [], {}
    for batch in encode._read(range(30)):
        images, questions = batch.rows["image"], batch.rows["question"]
        assert questions.shape == (len(images), 7)
        rows.setdefault(images.shape[1], set()).add(len(images))
        assert images[: len(batch.indices), 0, 0].tolist() == list(batch.indices)
        seen += batch.indices
    assert sorted(seen) == list(range(30))
    assert rows == {3: {8}, 5: {6}, 9: {3}}


@pytest.mark.parametrize("select", ["patch", "pooled"])
def test_tokens_of_a_decoder_are_in_no_file(select, tmp_path):
    """Its image is made of tokens even where it asks the tower for the pooled features alone."""
    config = captioner.get_config(f"select={select},width=16,depth=1")
    with config.unlocked():
        config.eval.cache = str(tmp_path)
    images = Encoder(resolve(config, "eval"), once=True).images
    assert images.cache.is_bounded
    assert images.cache.folder is None
    clip = with_evaluation(resolve(tiny.get_config(), "eval"), cache=str(tmp_path))
    assert Encoder(clip, once=True).images.cache.folder == tmp_path


@pytest.mark.slow
def test_an_image_and_a_text_of_two_benchmarks_are_encoded_once(run, encoded, tmp_path):
    setup, variables = run
    pixels = np.random.default_rng(0).integers(0, 255, (3, 50, 60, 3), np.uint8)
    for name, picture in zip("ab", pixels, strict=False):
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    copy = tmp_path / "copy_of_a.png"
    copy.write_bytes((tmp_path / "a.png").read_bytes())
    shown = [tmp_path / "a.png", pixels[2], tmp_path / "b.png"]
    first = [
        Case(str(i), (image,), ("a red circle", "a blue circle")) for i, image in enumerate(shown)
    ]
    second = [
        Case("0", (copy,), ("a blue circle", "a green ring")),
        Case("1", (copy.read_bytes(),), ("a red circle", "a green ring")),
    ]
    encoder = Encoder(setup, once=True)
    scorer, rows = encoder.scorer(variables), []
    for name, cases in (("one", first), ("two", second)):
        encoder.prepare(variables, Benchmark(name, cases, "v"))
        rows += evaluators.choice.evaluate(Benchmark(name, cases, "v"), scorer).per_example
    assert len(encoded) == 3 + 3
    assert rows[0]["scores"][1] == rows[3]["scores"][0]  # the same image and text
    np.testing.assert_allclose(rows[0]["scores"], plain_scores(run, first[0]), atol=1e-6)


def plain_scores(run, case):
    scorer = Encoder(run[0]).scorer(run[1])
    image, text = scorer.embed_images(list(case.images)), scorer.embed_texts(list(case.captions))
    return scorer.score(image, text)[0]


def results(setup, variables, order=None, names=("scenes_retrieval", "scenes_replace")):
    """Name -> scores by the id of a case, and the images' features by their content."""
    encoder, found = Encoder(setup, once=True), {}
    scorer = encoder.scorer(variables)
    for name in names:
        whole = READERS[name](split="validation", count=37)
        cases = list(whole.cases) if order is None else [whole.cases[i] for i in order(whole.cases)]
        benchmark = Benchmark(name, cases, "v", whole.classes, whole.templates)
        encoder.prepare(variables, benchmark)
        rows = evaluators.evaluate(PROTOCOL_OF[name], benchmark, scorer).per_example
        found[name] = {row["id"]: sorted(np.ravel(row["scores"])) for row in rows}
        features = scorer.embed_images([case.images[0] for case in cases]).pooled
        ids = [case.id for case in cases]
        found[f"{name} features"] = dict(zip(ids, map(bytes, features), strict=True))
    return found


@pytest.fixture(scope="module")
def expected(run):
    return results(*run)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["batch_size", "devices", "order", "other_benchmarks"])
def test_scores_are_the_same_bits_whatever_the_batches(run, expected, change):
    setup, variables = run
    if change == "batch_size":
        found = results(with_evaluation(setup, batch_size=5), variables)
    elif change == "devices":
        found = results(on_one_device(setup), variables)
    elif change == "order":
        shuffle = np.random.default_rng(1).permutation
        found = results(setup, variables, lambda cases: shuffle(len(cases)))
    else:
        found = results(setup, variables, names=("scenes_whatsup", "scenes_replace"))
        expected = {name: x for name, x in expected.items() if "replace" in name}
        found = {name: found[name] for name in expected}
    assert found == expected


@pytest.mark.parametrize("devices", [1, 8])
def test_a_score_is_the_same_bits_whatever_is_scored_with_it(run, devices):
    setup, variables = run
    setup = on_one_device(setup) if devices == 1 else setup
    scorer, rng = Encoder(setup, once=True).scorer(variables), np.random.default_rng(0)
    image = ImageFeatures(rng.standard_normal((530, 96), np.float32))
    text = TextFeatures(rng.standard_normal((530, 96), np.float32))
    scores = scorer.score(image, text)
    np.testing.assert_allclose(scores, image.pooled @ text.pooled.T, atol=1e-4)
    for images, texts in ((1, 530), (3, 2), (37, 41)):
        part = scorer.score(take(image, slice(images)), take(text, slice(texts)))
        assert (part == scores[:images, :texts]).all()
    for images, texts in ((1, 530), (3, 1), (37, 2), (106, 5), (530, 1)):
        rows = np.arange(images * texts)
        options = scorer.score_options(take(image, slice(images)), take(text, rows))
        alone = [
            scorer.score_options(take(image, rows[i // texts :][:1]), take(text, rows[i:][:1]))
            for i in range(min(5, len(rows)))
        ]
        assert (options.ravel()[:5] == np.ravel(alone)).all()
        np.testing.assert_allclose(options.ravel(), scores[rows // texts, rows], atol=1e-4)


@pytest.mark.slow
def test_cut_texts_have_the_features_of_full_ones(monkeypatch):
    """With CLIP's context length, and tokens of bytes."""
    config = tiny.get_config()
    with config.unlocked():
        config.text.tokenizer, config.text.context_length = "bytes", 77
        config.model.vocab_size = 300
    setup, variables = with_parameters(in_batches_of_eight(on_one_device(resolve(config, "eval"))))
    lengths, tower = set(), batches.sharding.put_batch
    monkeypatch.setattr(
        batches.sharding,
        "put_batch",
        lambda mesh, rows: lengths.add(rows["text"].shape[1]) or tower(mesh, rows),
    )
    few = ["", "a cat", *("a" * n for n in (14, 15, 16)), "a dog and a cat", "b" * 60, "c" * 99]
    texts = [*few, *(f"a {number}" for number in range(6))]
    cut = Encoder(setup, once=True).texts(variables, texts)
    assert lengths == {16, 32, 77}
    lengths.clear()
    mixed = Encoder(setup).texts(variables, texts)
    assert lengths == {16, 77}
    monkeypatch.setattr(encoder, "text_lengths", lambda *_, **__: None)
    full = Encoder(setup).texts(variables, texts)
    for found in (cut, mixed):
        np.testing.assert_allclose(found.pooled, full.pooled, rtol=0, atol=1e-6)
    assert len(np.unique(full.pooled.round(4), axis=0)) == len(texts)


def test_few_texts_of_several_lengths_are_one_batch(run):
    setup = in_batches_of_eight(on_one_device(run[0]))
    lengths = Lengths(lambda rows: rows["text"][:, 0].tolist(), is_mixed=True)

    def load(items):
        return {"text": np.repeat([[item] for item in items], 9, axis=1)}

    read = BatchEncoder(setup, len, load, lengths=lengths)._read
    for items, expected in (
        ([3, 9, 2], [([2, 0, 1], (8, 9))]),
        ([4] * 8 + [5, 2], [([*range(8)], (8, 4)), ([9, 8], (8, 5))]),
    ):
        found = [(list(batch.indices), batch.rows["text"].shape) for batch in read(items)]
        assert found == expected


def test_only_lengths_that_save_a_quarter_are_compiled():
    assert [len(lengths_up_to(n)) for n in (20, 22, 64)] == [1, 2, 4]
    assert lengths_up_to(77) == (16, 32, 48, 77)
    assert lengths_up_to(248) == (16, 32, 48, 64, 96, 128, 248)


def test_a_text_is_as_long_as_its_first_end_token_asks_for():
    rows = np.full((4, 77), 9)  # of which the third has no end token
    rows[0, [15, 30]], rows[1, 16], rows[3, 0] = 0, 0, 0
    assert short_lengths({"text": rows}, 0, (16, 32, 77)) == [16, 32, 77, 16]


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        ({}, "clip", True),
        ({}, "pacl", True),  # which pools texts
        ({"is_causal": False}, "clip", False),
        ({"pooling": "last"}, "clip", False),
        ({}, "dcsm", False),
        ({}, "sparc", False),
    ],
)
def test_texts_are_cut_only_where_no_feature_reads_padding(text, model, expected):
    config = tiny.get_config()
    with config.unlocked():
        config.model.name, config.model.text = model, {"depth": 1, **text}
        config.model.head = {"num_functional_words": 0} if model == "dcsm" else {}
    assert (text_lengths(resolve(config, "eval")) is not None) == expected


def test_a_signal_ends_an_encoder_between_batches(monkeypatch):
    stop, never = StopSignal(), threading.Event()
    interrupt = Interrupt(stop)
    interrupt.check()
    assert interrupt.call(lambda: 3) == 3
    with monkeypatch.context() as patched:
        patched.setattr("vlc_jax.devices.sharding.any_process", lambda flag: True)
        with pytest.raises(PreemptedError, match="another process"):
            interrupt.check()
    stop.name = "SIGTERM"
    for work in (interrupt.check, lambda: interrupt.call(never.wait)):
        with pytest.raises(PreemptedError, match="SIGTERM"):
            work()
    never.set()
