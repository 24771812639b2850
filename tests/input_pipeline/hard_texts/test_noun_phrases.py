"""Captions cut down to noun phrases: which, how often, and what is made of them then."""

import collections

import numpy as np
import pytest

from tests.support.generators import Prefix
from vlc_jax.input_pipeline.hard_texts import noun_phrases
from vlc_jax.input_pipeline.hard_texts.noun_phrases import NounPhrases
from vlc_jax.input_pipeline.hard_texts.sampling import make_hard_texts
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.tokenizers.byte_level import BytesTokenizer

TAGGER = "scenes:scenes-mini"
CAPTION = "a red circle left of a blue square"


def rng(seed=0):
    return np.random.default_rng(seed)


def test_phrases_and_templates_come_as_often_as_their_share():
    cut, stream = NounPhrases(0.5, TAGGER), rng()
    found = collections.Counter(cut(CAPTION, stream) for _ in range(4000))
    assert abs(found.pop(CAPTION) / 4000 - 0.5) < 0.03
    assert set(found) == {
        template.format(phrase)
        for template in noun_phrases.TEMPLATES
        for phrase in ("a red circle", "a blue square")
    }
    assert min(found.values()) > 130  # of 200


def test_phrases_lose_their_capitals(tmp_path):
    path = tmp_path / "tags.jsonl"
    path.write_text(
        '{"tagger": "hand", "version": "1"}\n'
        '{"caption": "My Dog runs", "noun_chunks": [[0, 2]], "tokens": ['
        '{"text": "My", "tag": "PRP$", "pos": "PRON", "start": 0, "stop": 2},'
        '{"text": "Dog", "tag": "NN", "pos": "NOUN", "start": 3, "stop": 6},'
        '{"text": "runs", "tag": "VBZ", "pos": "VERB", "start": 7, "stop": 11}]}\n'
        '{"caption": "Yes", "noun_chunks": [], "tokens": []}\n'
    )
    cut = NounPhrases(1.0, f"precomputed:{path}")
    assert "my dog" in cut("My Dog runs", rng())
    assert cut("Yes", rng()) == "Yes"
    phrases = noun_phrases.Phrases(f"precomputed:{path}")
    assert [phrases(caption, rng(), 3) for caption in ("My Dog runs", "Yes")] == [["my dog"], []]
    with pytest.raises(DataError, match="has no caption 'No'"):
        cut("No", rng())


def test_phrases_of_a_caption_are_its_hard_positives_each_once():
    phrases = noun_phrases.Phrases(TAGGER)
    assert {*phrases(CAPTION, rng(), 3)} == {"a red circle", "a blue square"}
    assert phrases("a red circle left of a red circle", rng(), 3) == ["a red circle"]
    assert {*(phrases(CAPTION, rng(seed), 1)[0] for seed in range(9))} == {
        *phrases(CAPTION, rng(), 2)
    }


def test_the_version_names_share_and_tagger():
    assert NounPhrases(0.5, TAGGER).version == NounPhrases(0.5, TAGGER).version
    assert NounPhrases(0.5, TAGGER).version != NounPhrases(0.25, TAGGER).version
    assert "scenes-mini" in NounPhrases(0.5, TAGGER).version
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match=f"share is a number from 0 to 1; got {share}"):
            NounPhrases(share, TAGGER)


class Scenes:
    """Records of one caption that hold a negative and a positive for it."""

    fingerprint = "scenes"

    def __len__(self):
        return 16

    def __getitem__(self, index):
        pixels = np.full((8, 8, 3), index, np.uint8)
        return Record(
            f"r{index}", pixels, [CAPTION], [["given negative"]], [["given positive"]], [["x"]]
        )


def batches(start=0, count=4, **options):
    prefix = {"generators": {"prefix": 1.0}, "options": {"prefix": {"prefix": "no "}}}
    texts = {
        "negatives": make_hard_texts("negatives", count=1, table={"prefix": Prefix}, **prefix),
        "positives": make_hard_texts("positives", count=1),
    }
    with make_train(
        Scenes(),
        BytesTokenizer(64),
        ImageTransform(8),
        **{"batch_size": 8, "seed": 3, "start_step": start, **texts, **options},
    ) as loader:
        return [next(loader) for _ in range(count)]


def words(row):
    return bytes(int(token) - 1 for token in row if 0 < token <= 256).decode()


def test_hard_texts_are_made_of_the_caption_that_is_used():
    cut = NounPhrases(0.5, TAGGER)
    seen = collections.Counter()
    for batch in batches(noun_phrases=cut):
        for row in range(8):
            text = words(batch["text"][row])
            assert words(batch["negative_text"][row, 0]) == f"no {text}"
            assert batch["positive_mask"][row, 0] == (text == CAPTION)  # the record's is of it
            seen[text == CAPTION] += 1
    assert min(seen.values()) > 5


def test_captions_depend_on_seed_and_position_alone():
    cut = NounPhrases(0.5, TAGGER)
    whole = batches(noun_phrases=cut)
    resumed = batches(2, 2, noun_phrases=cut, process_index=1, process_count=2)
    for one, other in zip(resumed, whole[2:], strict=True):
        np.testing.assert_array_equal(one["text"], other["text"][4:])
    for plain, one in zip(batches(), whole, strict=True):
        np.testing.assert_array_equal(plain["id"], one["id"])
    other = batches(noun_phrases=cut, seed=4)
    assert any((a["text"] != b["text"]).any() for a, b in zip(other, whole, strict=True))
