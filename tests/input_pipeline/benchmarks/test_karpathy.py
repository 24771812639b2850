import numpy as np
import pytest

from tests.support import sets
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.benchmarks.shuffled import TEXT_SHUFFLES
from vlc_jax.input_pipeline.images.image_ops import decode, shuffle
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.record import DataError, ShuffledImage


def read(root, **options):
    return READERS["coco_retrieval"](root=root, **options)


def test_captions_are_raw_unless_prepared(all_sets):
    raw, prepared = (read(all_sets, prepare=prepare).cases[0].captions for prepare in (False, True))
    assert raw[1] == "Two dogs (brown) play: one runs, one sits"
    assert prepared == (
        "a brown dog runs on the wet sand",
        "two dogs brown play one runs, one sits",
    )


@pytest.mark.parametrize("name", TEXT_SHUFFLES)
def test_shuffled_texts_keep_their_words_and_follow_the_seed(all_sets, name, tmp_path):
    prepared = read(all_sets, prepare=True).cases[0].captions
    tags = tmp_path / "tags.jsonl"
    sets.aro.write_tags(tags, list(prepared))
    options = {"text_shuffle": name, "tagger": f"precomputed:{tags}"}
    first, again, other = (read(all_sets, **options, shuffle_seed=k) for k in (0, 0, 7))
    assert first.cases[0].captions == again.cases[0].captions
    assert len({first.version, other.version, read(all_sets).version}) == 3
    for shuffled, caption in zip(first.cases[0].captions, prepared, strict=True):
        words = lambda text: sorted(text.replace(",", " ,").split())  # noqa: E731
        assert words(shuffled) == words(caption)
    assert {first.cases[0].captions, other.cases[0].captions} != {prepared}


def test_unknown_shuffles_name_those_there_are(all_sets):
    with pytest.raises(ValueError, match=r"text_shuffle .*shuffle_words.*; got 'shuffle_wrds'"):
        read(all_sets, text_shuffle="shuffle_wrds")
    with pytest.raises(ValueError, match=r"image_shuffle .*'patches_9'.*; got 'patches'"):
        read(all_sets, image_shuffle="patches")


@pytest.mark.parametrize(("name", "parts"), [("rows_4", 4), ("cols_4", 4), ("patches_9", 9)])
def test_images_are_shuffled_after_the_transform(all_sets, name, parts):
    image = read(all_sets, image_shuffle=name).cases[0].images[0]
    assert sorted(image.order) == list(range(parts))
    transform = ImageTransform(36)
    np.testing.assert_array_equal(transform(image), shuffle(transform(image.image), image))
    same = ShuffledImage(image.image, name, tuple(range(parts)))
    np.testing.assert_array_equal(transform(same), transform(image.image))


def test_parts_change_places_and_the_rest_is_the_mean_colour():
    pixels = np.arange(7 * 7 * 3, dtype=np.uint8).reshape(7, 7, 3)
    order = (8, 1, 2, 3, 4, 5, 6, 7, 0)
    shuffled = shuffle(pixels, ShuffledImage(pixels, "patches_9", order))
    np.testing.assert_array_equal(shuffled[:2, :2], pixels[4:6, 4:6])
    np.testing.assert_array_equal(shuffled[4:6, 4:6], pixels[:2, :2])
    np.testing.assert_array_equal(shuffled[:2, 2:4], pixels[:2, 2:4])
    assert (shuffled[6] == [123, 117, 104]).all()
    assert (shuffled[:, 6] == [123, 117, 104]).all()
    with pytest.raises(DataError, match="9 parts"):
        decode(ShuffledImage(pixels, "patches_9", (0, 1)))


def test_retrieval_of_scenes_and_of_sources_is_shuffled_alike():
    plain = READERS["scenes_retrieval"](count=4)
    options = {"text_shuffle": "shuffle_nouns_and_adjectives", "tagger": "scenes:scenes-mini"}
    words = READERS["scenes_retrieval"](count=4, **options)
    patches = READERS["scenes_retrieval"](count=4, image_shuffle="patches_9")
    for case, shuffled, parts in zip(plain.cases, words.cases, patches.cases, strict=True):
        assert sorted(shuffled.captions[0].split()) == sorted(case.captions[0].split())
        assert parts.captions == case.captions
        np.testing.assert_array_equal(parts.images[0].image, case.images[0])
    assert any(a.captions != b.captions for a, b in zip(plain.cases, words.cases, strict=True))
    of_source = READERS["retrieval"](source="digits", count=2, image_shuffle="rows_4")
    assert of_source.cases[0].images[0].shuffle == "rows_4"
    assert len({plain.version, words.version, patches.version}) == 3
