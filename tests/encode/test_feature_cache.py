"""Features that are kept: in memory, in a folder that evaluations share, and in a workdir."""

import errno
import logging

import jax
import numpy as np
import pytest

from tests.encode.conftest import with_evaluation
from tests.support import tiny
from vlc_jax.encode import feature_cache
from vlc_jax.encode.batches import BatchEncoder
from vlc_jax.encode.encoder import Encoder
from vlc_jax.encode.interrupt import NEVER, Interrupt
from vlc_jax.errors import UsageError
from vlc_jax.setup import resolve
from vlc_jax.types import ImageFeatures


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


def test_features_with_tokens_stay_below_the_limit(towers, monkeypatch):
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


def test_only_the_tower_that_changed_encodes_anew(run, towers):
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


def test_a_cache_that_cannot_be_written_is_refused_at_once(run, tmp_path):
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


def test_a_workdir_keeps_features_of_a_stopped_evaluation(unfinished, towers):
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


def test_the_oldest_files_of_a_workdir_go_beyond_the_limit(unfinished, towers, monkeypatch):
    make, folder = unfinished
    monkeypatch.setattr(feature_cache, "FLUSH_SECONDS", 0.0)
    make()[1].embed_images(pictures(8))
    (first,) = folder.glob("image-*/*.npz")
    monkeypatch.setattr(feature_cache, "DISK", 2 * first.stat().st_size)
    make()[1].embed_images(pictures(40))  # four more files, of as many features
    assert len(list(folder.glob("image-*/*.npz"))) == 2
    assert not first.exists()


def test_an_evaluation_goes_on_without_a_place_for_features(
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
