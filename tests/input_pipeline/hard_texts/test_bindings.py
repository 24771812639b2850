"""Bindings of captions, and which of them a table of training captions holds."""

import itertools
import json

import numpy as np
import pytest

from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.input_pipeline.hard_texts.taggers import make_tagger
from vlc_jax.input_pipeline.record import DataError, Record

COLOURS, SHAPES = ("red", "blue", "green", "cyan"), ("circle", "square", "cross", "star")
RELATIONS = ("left of", "right of", "above", "below")


def found(caption, tagger="words"):
    return bindings.find(bindings.make_tagger(tagger)(caption))


def write(path, captions):
    path.write_text("".join(json.dumps({"caption": caption}) + "\n" for caption in captions))
    return path


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A brown dog.", {("brown", "dog")}),
        ("the orange on the plate", {("orange", "on", "plate")}),
        ("two BIG dogs", {("two", "dog"), ("big", "dog")}),
        ("the dog is small and white", {("small", "dog"), ("white", "dog")}),
        ("a cat, a dog and a bird", set()),
        ("a man standing", {("stand", "man")}),
        ("a wolf sits. a dog is near it", {("sit", "wolf")}),
        (
            "a cat on top of a wooden table next to a laptop",
            {("cat", "on top of", "table"), ("wooden", "table"), ("table", "next to", "laptop")},
        ),
        ("a truck in front of the parked cars", {("truck", "in front of", "car"), ("park", "car")}),
        (
            "a smiling woman riding horses",
            {("smil", "woman"), ("woman", "rid", "horse"), ("rid", "woman")},
        ),
        ("boat in water", {("boat", "in", "water")}),
        ("a black and white cat", {("black", "cat"), ("white", "cat")}),
        ("", set()),
    ],
)
def test_bindings_of_a_caption(caption, expected):
    assert found(caption) == expected


def test_a_binding_has_one_form_whatever_number_and_tense():
    assert found("sitting woman") == found("the woman sits") == {("sit", "woman")}
    first, second = found("The girls are riding a horse"), found("a girl rides horses")
    assert first == second
    assert ("girl", "rid", "horse") in first


def test_swaps_have_other_bindings_of_the_same_words():
    for one, other in (
        ("a red square and a cyan cross", "a cyan square and a red cross"),
        ("a dog chasing a cat", "a cat chasing a dog"),
    ):
        assert found(one) != found(other)
        assert {word for each in found(one) for word in each} == {
            word for each in found(other) for word in each
        }


@pytest.mark.parametrize("relation", RELATIONS)
def test_both_taggers_find_the_same_bindings_in_scenes(relation):
    caption = f"a small red circle {relation} a blue square"
    assert found(caption) == found(caption, "scenes:scenes-mini")
    assert ("circle", relation, "square") in found(caption)


def test_the_tagger_is_words_where_spacy_is_not_installed(monkeypatch):
    monkeypatch.setattr(bindings.importlib.util, "find_spec", lambda name: None)
    assert bindings.make_tagger().name == "words"
    with pytest.raises(ValueError, match="needs spaCy"):
        bindings.make_tagger("spacy:en_core_web_sm")


def test_groups_equal_a_brute_force_count_of_planted_bindings(tmp_path):
    objects = [*itertools.product(COLOURS, SHAPES)]
    captions = [
        f"a {a} {b} {relation} a {c} {d}"
        for (a, b), (c, d), relation in itertools.product(
            objects[::2], objects[1::3], RELATIONS[:2]
        )
    ]
    training = bindings.Training(write(tmp_path / "train.jsonl", captions), tagger="words")
    tagger = make_tagger("scenes:scenes-mini")
    seen = set().union(*(bindings.find(tagger(caption)) for caption in captions))
    assert len(training) == len(seen)
    counts = dict.fromkeys((*bindings.GROUPS.values(), bindings.NONE), 0)
    for (a, b), (c, d) in itertools.permutations(objects, 2):
        pair = [f"a {a} {b} and a {c} {d}", f"a {c} {b} and a {a} {d}"]
        own, other = ({(a, b), (c, d)}, {(c, b), (a, d)})
        expected = bindings.NONE
        if own != other:
            expected = bindings.GROUPS[own - other <= seen, other - own <= seen]
        assert bindings.group(training, pair[0], pair[1:]) == expected
        counts[expected] += 1
    assert all(counts.values()), counts


def test_one_seen_wrong_caption_of_several_is_enough(tmp_path):
    path = write(tmp_path / "train.jsonl", ["a red dog", "a blue cat"])
    training = bindings.Training(path, tagger="words")
    assert bindings.group(training, "a red dog", ["a green dog"]) == "only caption seen"
    assert bindings.group(training, "a red cat", ["a green cat", "a blue cat"]) == (
        "only wrong caption seen"
    )
    # a binding of both decides nothing
    assert bindings.group(training, "a red dog and a fat fox", ["a green dog and a fat fox"]) == (
        "only caption seen"
    )
    # it says nothing of its own
    assert bindings.group(training, "a cat", ["a blue cat"]) == "both seen"
    assert bindings.group(training, "a cat", ["a dog"]) == bindings.NONE


def test_the_order_of_captions_and_of_merges_does_not_matter(tmp_path, monkeypatch):
    captions = [f"a {a} {b} {r} a {b}" for a in COLOURS for b in SHAPES for r in RELATIONS]
    one = bindings.Training(write(tmp_path / "a.jsonl", captions), tagger="words")
    monkeypatch.setattr(bindings, "_AT_ONCE", 3)
    other = bindings.Training(write(tmp_path / "b.jsonl", captions[::-1] * 2), tagger="words")
    assert [*one._hashes] == [*other._hashes]
    assert len(one) == len(COLOURS) * len(SHAPES) + len(SHAPES) * len(RELATIONS)


def test_a_prepared_folder_holds_what_its_table_holds(tmp_path):
    class Pictures:
        fingerprint = "pictures"

        def __len__(self):
            return 8

        def __getitem__(self, index):
            captions = [f"a {COLOURS[index % 4]} dog", f"a {SHAPES[index // 2]} cat"]
            return Record(str(index), np.zeros((8, 8, 3), np.uint8), captions)

    shard_writer.write(Pictures(), tmp_path / "prepared", size=8, shard_size=3)
    captions = [
        text for record in map(Pictures().__getitem__, range(8)) for text in record.captions
    ]
    table = bindings.Training(write(tmp_path / "train.jsonl", captions), tagger="words")
    assert [*bindings.Training(tmp_path / "prepared", tagger="words")._hashes] == [*table._hashes]
    assert ("red", "dog") in table


@pytest.mark.usefixtures("table_cache")
def test_a_second_opening_tags_nothing(tmp_path, monkeypatch):
    path = write(tmp_path / "train.jsonl", ["a red dog"])
    whole, tagged = bindings.find, []
    monkeypatch.setattr(bindings, "find", lambda of: tagged.append(of) or whole(of))
    assert ("red", "dog") in bindings.Training(path, tagger="words")
    again = bindings.Training(path, tagger="words")
    assert ("red", "dog") in again
    assert ("red", "cat") not in again
    assert len(tagged) == 1
    write(path, ["a red dog", "a red cat"])
    assert ("red", "cat") in bindings.Training(path, tagger="words")
    assert len(tagged) == 3


def test_a_table_without_captions_is_refused(tmp_path):
    path = write(tmp_path / "train.jsonl", ["a red dog"])
    with pytest.raises(ValueError, match="no column 'text'"):
        bindings.Training(path, "text", "words")
    with pytest.raises(ValueError, match="it is a folder"):
        bindings.Training(tmp_path, tagger="words")
    with pytest.raises(DataError, match="outside the grammar"):
        bindings.Training(path, tagger="scenes:scenes-mini")
