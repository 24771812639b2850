"""Features of evaluation: each distinct image and text once, the same bits whatever the batches."""

import errno
import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from tests.support import small_models, tiny
from vlc_jax import evaluators
from vlc_jax.configs.scenes import captioner
from vlc_jax.encode import batches, feature_cache
from vlc_jax.encode.batches import BatchEncoder, Lengths
from vlc_jax.encode.encoder import Encoder, short_lengths, takes_shorter_texts, text_lengths
from vlc_jax.encode.interrupt import NEVER, Interrupt
from vlc_jax.errors import DivergedError, PreemptedError, UsageError
from vlc_jax.evaluators.scorer import take
from vlc_jax.input_pipeline.benchmarks import PROTOCOL_OF, READERS, Benchmark, Case
from vlc_jax.models import parameters
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.setup import resolve
from vlc_jax.types import ImageFeatures, TextFeatures


@pytest.fixture(scope="module")
def run():
    """Setup of the tiny model on all devices, and random parameters."""
    return with_parameters(resolve(tiny.get_config(), "eval"))


def with_parameters(setup):
    params = jax.device_put(small_models.normal(setup.parameters.shapes, 0.1))
    return setup, {"params": params, "batch_stats": {}}


@pytest.fixture
def encoded(monkeypatch):
    """The items that were encoded, in their order."""
    items, batches = [], BatchEncoder.batches

    def counted(encoder, variables, asked):
        items.extend(asked)
        return batches(encoder, variables, asked)

    monkeypatch.setattr(BatchEncoder, "batches", counted)
    return items


@pytest.fixture
def towers(monkeypatch):
    """Towers that compile nothing: features are random numbers, seeded by an item and a parameter.
    Gives the items that were encoded, in their order.
    """
    items = []

    def batches(encoder, variables, asked):
        scale = float(variables["params"]["logit_scale"])
        for start in range(0, len(asked), 8):
            encoder._interrupt.check()
            part = asked[start : start + 8]
            items.extend(part)
            seeds = [hash((scale, x if isinstance(x, str) else x.tobytes())) for x in part]
            rows = [np.random.default_rng(abs(seed)).random(6, np.float32) for seed in seeds]
            kind = TextFeatures if isinstance(part[0], str) else ImageFeatures
            tokens = np.stack(rows)[:, None] if encoder.has_tokens else None
            yield range(start, start + len(part)), kind(np.stack(rows), tokens)

    monkeypatch.setattr(BatchEncoder, "batches", batches)
    monkeypatch.setattr(BatchEncoder, "has_tokens", False, raising=False)
    return items


def on_one_device(setup):
    names, types = setup.mesh.axis_names, setup.mesh.axis_types
    return setup._replace(mesh=jax.make_mesh((1, 1), names, types, devices=jax.devices()[:1]))


def with_evaluation(setup, **changes):
    return setup._replace(evaluation=setup.evaluation._replace(**changes))


@pytest.mark.parametrize("on_host", [True, False])
def test_parameters_that_are_not_finite_are_named_before_anything_is_scored(
    run, monkeypatch, on_host
):
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


def test_large_images_have_fewer_rows_in_a_batch_and_their_questions_are_not_cut(run):
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
def test_scores_are_the_same_bits_whatever_the_batches_devices_and_order(run, expected, change):
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
    setup, variables = with_parameters(on_one_device(resolve(config, "eval")))
    lengths, tower = set(), batches.sharding.put_batch
    monkeypatch.setattr(
        batches.sharding,
        "put_batch",
        lambda mesh, rows: lengths.add(rows["text"].shape[1]) or tower(mesh, rows),
    )
    texts = ["", "a cat", *("a" * n for n in (14, 15, 16)), "a dog and a cat", "b" * 60, "c" * 99]
    cut = Encoder(setup, once=True).texts(variables, texts)
    assert lengths == {16, 32, 77}
    full = Encoder(setup).texts(variables, texts)
    np.testing.assert_allclose(cut.pooled, full.pooled, rtol=0, atol=1e-6)
    assert len(np.unique(full.pooled.round(4), axis=0)) == len(texts)


def test_only_lengths_that_save_a_quarter_are_compiled():
    assert text_lengths(77) == (16, 32, 48, 77)
    assert text_lengths(64) == (16, 32, 48, 64)
    assert text_lengths(22) == (16, 22)
    assert text_lengths(20) == (20,)


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
    assert takes_shorter_texts(resolve(config, "eval")) == expected


def test_memory_forgets_the_features_that_were_read_longest_ago(monkeypatch):
    monkeypatch.setattr(feature_cache, "MEMORY", 200)  # of two items
    computed = []

    def compute(items):
        computed.extend(items)
        yield range(len(items)), ImageFeatures(np.zeros((len(items), 25), np.float32))

    options = {"is_pooled": False, "kept": feature_cache.Kept()}
    cache = feature_cache.FeatureCache("image", str.encode, {}, **options)
    for item in "abacab":
        cache.features([item], compute)
    assert computed == [*"abcb"]


def pictures(count):
    return list(np.random.default_rng(0).integers(0, 255, (count, 4, 4, 3), np.uint8))


def test_features_with_tokens_stay_below_the_limit_and_are_complete(towers, monkeypatch):
    config = tiny.get_config()
    with config.unlocked():
        config.model.name = "pacl"
    monkeypatch.setattr(BatchEncoder, "has_tokens", True)
    monkeypatch.setattr(feature_cache, "MEMORY", 10 * 2 * 6 * 4)  # of ten images
    variables = {"params": {"image": {}, "text": {}, "logit_scale": 1.0}}
    scorer, images = Encoder(resolve(config, "eval"), once=True).scorer(variables), pictures(40)
    found = scorer.embed_images(images)  # more than fit
    assert (found.tokens[:, 0] == found.pooled).all()
    assert len(np.unique(found.pooled, axis=0)) == 40
    scorer.embed_images(images[-10:])
    assert len(towers) == 40
    assert (scorer.embed_images(images[:1]).tokens == found.tokens[:1]).all()
    assert len(towers) == 41


def test_a_tower_whose_parameters_changed_encodes_anew_and_the_other_does_not(run, towers):
    setup, variables = run
    encoder, texts, images = Encoder(setup, once=True), ["a red circle", "a blue ring"], pictures(3)
    params = variables["params"]
    trained = {**params, "text": jax.tree.map(lambda x: 1.1 * np.asarray(x), params["text"])}
    for params_now in (params, trained):
        scorer = encoder.scorer({**variables, "params": params_now})
        scorer.embed_texts(texts)
        scorer.embed_images(images)
    assert len(towers) == 2 * 2 + 3


@pytest.fixture
def cached(run, tmp_path):
    """(setup with a cache, variables, folder)."""
    return with_evaluation(run[0], cache=str(tmp_path / "cache")), run[1], tmp_path / "cache"


def features(setup, variables, count=40):
    scorer = Encoder(setup, once=True).scorer(variables)
    image = scorer.embed_images(pictures(count))
    text = scorer.embed_texts(["a red circle", "a ring"])
    return image.pooled.tobytes() + text.pooled.tobytes()


def test_a_second_evaluation_reads_the_features_of_the_first(run, cached, towers):
    setup, variables, folder = cached
    without = features(*run)
    first = features(setup, variables)
    towers.clear()
    assert features(setup, variables) == first == without
    assert towers == []
    kinds = sorted(path.name.split("-")[0] for path in folder.iterdir())
    assert kinds == ["image", "text"]
    features(setup, variables, count=41)
    assert len(towers) == 1


@pytest.mark.parametrize("change", ["weights", "pixels", "text"])
def test_features_of_something_else_are_not_taken(cached, towers, change):
    setup, variables, _ = cached
    features(setup, variables)
    towers.clear()
    if change == "weights":
        variables = {
            **variables,
            "params": jax.tree.map(lambda x: 1.1 * np.asarray(x), variables["params"]),
        }
    elif change == "pixels":
        transform = type(setup.evaluation.transform)(size=40, interpolation="bilinear")
        setup = with_evaluation(setup, transform=transform)
    else:
        inputs = {**setup.evaluation.inputs, "text": {"context_length": 19}}
        setup = with_evaluation(setup, inputs=inputs)
    features(setup, variables)
    assert len(towers) == {"weights": 42, "pixels": 40, "text": 2}[change]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_said_once_and_computed_again(cached, towers, caplog, damage):
    setup, variables, folder = cached
    expected = features(setup, variables)
    (file,) = folder.glob("image-*/*.npz")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    np.savez(other := folder / "other.npz", keys=np.zeros(3))
    wrong = {"cut": content[:-500], "flipped": content, "empty": b"", "other": other.read_bytes()}
    file.write_bytes(wrong[damage])
    towers.clear()
    with caplog.at_level(logging.WARNING):
        assert features(setup, variables) == expected
        assert len(towers) == 40
        assert features(setup, variables) == expected
    assert [f"{file} is damaged" in record.message for record in caplog.records] == [True]
    assert len(towers) == 40


def test_a_signal_of_any_process_ends_an_encoder_between_batches_and_a_read(monkeypatch):
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


def checked_by(check):
    """An Interrupt that calls `check` before each batch."""
    interrupt = Interrupt()
    interrupt.check = check
    return interrupt


def test_a_stopped_evaluation_goes_on_from_its_features(cached, towers):
    setup, variables, folder = cached
    calls = []

    def stop():
        calls.append(None)
        if len(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Encoder(setup, checked_by(stop), once=True).scorer(variables).embed_images(pictures(40))
    towers.clear()
    Encoder(setup, once=True).scorer(variables).embed_images(pictures(40))
    assert [image.tobytes() for image in towers] == [x.tobytes() for x in pictures(40)[24:]]
    assert not list(folder.rglob("*.writing"))


def test_features_are_written_while_others_are_computed(cached, towers, monkeypatch):
    setup, variables, folder = cached
    monkeypatch.setattr(feature_cache, "FLUSH_SECONDS", 0.0)
    seen = []
    written = checked_by(lambda: seen.append(len(list(folder.glob("image-*/*.npz")))))
    Encoder(setup, written, once=True).scorer(variables).embed_images(pictures(24))
    assert seen == [0, 1, 2]


def test_a_cache_that_cannot_be_written_is_refused_before_anything_is_encoded(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"config\.eval\.cache: cannot write to .*file/cache"):
        Encoder(with_evaluation(run[0], cache=str(tmp_path / "file/cache")), once=True)


def test_a_full_disk_leaves_no_half_a_file(cached, towers, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    setup, variables, folder = cached
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        features(setup, variables)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["facts.json"]


@pytest.fixture
def unfinished(run, tmp_path):
    """A function (setup, variables, encoder's Interrupt) -> the encoder of an evaluation that keeps
    its features in tmp_path/run/features while it is unfinished, and its scorer."""

    def make(variables=run[1], interrupt=NEVER):
        encoder = Encoder(run[0], interrupt, once=True, unfinished=tmp_path / "run/features")
        return encoder, encoder.scorer(variables)

    return make, tmp_path / "run/features"


def test_a_workdir_keeps_the_features_of_a_stopped_evaluation_until_it_is_finished(
    unfinished, towers
):
    make, folder = unfinished
    stops = iter([None, None, None, KeyboardInterrupt()])

    def stop():
        if error := next(stops, None):
            raise error

    encoder, scorer = make(interrupt=checked_by(stop))
    with pytest.raises(KeyboardInterrupt):
        scorer.embed_images(pictures(40))
    assert not folder.exists()  # an evaluation of less than half a minute writes nothing
    encoder.save()
    assert len(list(folder.glob("image-*/*.npz"))) == 1
    towers.clear()
    encoder, scorer = make()
    again = scorer.embed_images(pictures(40)).pooled
    assert [image.tobytes() for image in towers] == [x.tobytes() for x in pictures(40)[24:]]
    encoder.forget()
    assert not folder.exists()
    assert (make()[1].embed_images(pictures(40)).pooled == again).all()


def test_a_workdir_has_features_of_one_set_of_weights_at_most(run, unfinished, towers):
    make, folder = unfinished
    params = run[1]["params"]
    for scale in (1.0, 2.0):
        encoder, scorer = make(
            {**run[1], "params": jax.tree.map(lambda x, k=scale: k * np.asarray(x), params)}
        )
        assert len(list(folder.glob("*"))) == 0
        scorer.embed_images(pictures(3))
        encoder.save()
        assert len(list(folder.glob("image-*/*.npz"))) == 1


def test_the_oldest_files_of_a_workdir_are_removed_beyond_the_limit(
    unfinished, towers, monkeypatch
):
    make, folder = unfinished
    monkeypatch.setattr(feature_cache, "FLUSH_SECONDS", 0.0)
    make()[1].embed_images(pictures(8))
    (first,) = folder.glob("image-*/*.npz")
    monkeypatch.setattr(feature_cache, "DISK", 2 * first.stat().st_size)
    make()[1].embed_images(pictures(40))  # four more files, of as many features
    assert len(list(folder.glob("image-*/*.npz"))) == 2
    assert not first.exists()


def test_an_evaluation_goes_on_where_its_features_cannot_be_written(
    unfinished, towers, monkeypatch, caplog
):
    make, folder = unfinished
    folder.parent.mkdir()
    folder.write_text("a file in its place")
    monkeypatch.setattr(feature_cache, "FLUSH_SECONDS", 0.0)
    encoder, scorer = make()
    assert len(scorer.embed_images(pictures(40)).pooled) == 40
    encoder.save()
    encoder.forget()
    (record,) = caplog.records
    assert "features of this evaluation are not kept" in record.message


def test_features_are_not_written_or_removed_through_a_link(unfinished, towers, tmp_path):
    make, folder = unfinished
    elsewhere = tmp_path / "elsewhere/image-0"
    elsewhere.mkdir(parents=True)
    folder.parent.mkdir()
    folder.symlink_to(elsewhere.parent)
    encoder, scorer = make()
    scorer.embed_images(pictures(3))
    encoder.save()
    encoder.forget()
    assert list(elsewhere.parent.rglob("*")) == [elsewhere]


def test_an_empty_name_of_the_cache_means_no_files(run, towers, tmp_path):
    setup = with_evaluation(run[0], cache="")
    encoder = Encoder(setup, once=True, unfinished=tmp_path / "features")
    encoder.scorer(run[1]).embed_images(pictures(3))
    encoder.save()
    assert not (tmp_path / "features").exists()
