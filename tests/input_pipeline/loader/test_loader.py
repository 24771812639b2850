"""The order of training, its independence of hosts, workers and restarts, and bad records."""

import collections

import numpy as np
import pytest

from tests.support import helpers
from tests.support.numbered import WORDS, Numbered, assert_equal, drain, joined, loader, take
from vlc_jax.input_pipeline import batch as contract
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import make_tokenizer
from vlc_jax.input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer


def numbers(batches):
    return [int(level) for batch in batches for level in batch["image"][:, 0, 0, 0]]


RANDOM_CROP = ImageTransform(8, crop="random_resized", scale=(0.3, 1.0))


def test_batches_obey_the_contract_and_belong_together():
    for batch in take(3):
        contract.check(batch)
        assert set(batch) == {"image", "text", "id", "mask"}
        assert batch["mask"].all()
        for row in range(8):
            number = batch["image"][row, 0, 0, 0]
            assert batch["text"][row, 0] == WORDS([f"n{number}"])[0, 0]
            assert batch["id"][row] == contract.hash_id(f"r{number}")


def test_any_start_step_continues_the_unbroken_run():
    source = make_source("digits", "test")
    tokenizer = make_tokenizer("digits", 8)
    options = {"transform": RANDOM_CROP, "tokenizer": tokenizer, "batch_size": 48}
    whole = take(12, source, **options)
    for start in (1, 7, 11):
        assert_equal(take(12 - start, source, start_step=start, **options), whole[start:])


def test_every_epoch_visits_every_record_once_in_its_order():
    seen = numbers(take(15))  # 120 places: four epochs of 30
    epochs = [seen[i : i + 30] for i in range(0, 120, 30)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(30))
    assert len({tuple(epoch) for epoch in epochs}) == 4


GOLDEN = "the data order of old runs is lost: they resume with other records than they began with"


@pytest.mark.parametrize(
    ("seed", "first", "second_epoch"),
    [
        (0, [160, 77, 31, 141, 146, 121, 144, 119], [24, 105, 1, 95, 166, 165, 3, 73]),
        (7, [170, 84, 161, 45, 167, 173, 110, 87], [186, 171, 122, 162, 196, 159, 91, 169]),
    ],
)
def test_the_order_of_a_seed_is_that_of_earlier_versions(seed, first, second_epoch):
    """Neither Grain nor numpy promises its order across versions; these are Grain 0.2.18's."""
    with loader(Numbered(200), seed=seed) as batches:
        for step, expected in ((0, first), (25, second_epoch)):
            assert batches.record_ids(step) == [f"r{index}" for index in expected], GOLDEN


def test_the_captions_of_a_seed_are_those_of_earlier_versions():
    with loader(seed=7, batch_size=24) as batches:
        text = next(batches)["text"]
    is_second = text[:, 1] == WORDS(["second"])[0, 0]
    assert np.flatnonzero(is_second).tolist() == [8, 11, 13, 17, 19, 21, 22], GOLDEN


def test_captions_are_drawn_at_random_and_blank_ones_never():
    second = WORDS(["second"])[0, 0]
    drawn = [bool(row[1] == second) for batch in take(30) for row in batch["text"]]
    assert 0.35 < np.mean(drawn) < 0.65
    assert all((batch["text"][:, 1] > 1).all() for batch in take(3))


def test_a_bad_record_gives_its_place_to_the_next_usable_one():
    clean = numbers(take(8))
    source = Numbered(bad=(3, 4, 29))
    with loader(source, max_bad_share=0.2) as batches:
        got = numbers([next(batches) for _ in range(8)])
        reasons = dict(batches.bad)
    replaced = {3: 5, 4: 5, 29: 0}
    assert got == [replaced.get(number, number) for number in clean]
    assert set(reasons) == {"r3", "r4", "r29"}
    assert all("not an image" in reason for reason in reasons.values())


def test_a_row_per_caption_trains_as_lists_and_resumes(tmp_path):
    names = helpers.write_photos(tmp_path, 6)
    texts = {name: [f"{name} a", f"{name} b"] for name in names}
    rows = {
        "lists": [{"image": name, "caption": texts[name]} for name in names],
        "flat": [{"image": name, "caption": texts[name][k]} for k in (0, 1) for name in names],
    }
    taken = {}
    options = {"transform": RANDOM_CROP, "tokenizer": make_tokenizer("bytes", 20), "batch_size": 4}
    for kind, content in rows.items():
        path = helpers.write_rows(tmp_path / f"{kind}.jsonl", content)
        source = make_source("records", "train", path=path)
        taken[kind] = take(4, source, **options)
        assert_equal(take(1, source, start_step=3, **options), taken[kind][3:])
    assert_equal(taken["flat"], taken["lists"])


def test_bad_records_do_not_disturb_resuming_nor_hosts():
    source = Numbered(bad=(3, 4, 29))
    whole = take(10, source, max_bad_share=0.2)
    assert_equal(take(4, source, max_bad_share=0.2, start_step=6), whole[6:])
    shares = [take(10, source, max_bad_share=0.2, process_index=h, process_count=2) for h in (0, 1)]
    assert_equal(joined(shares), whole)


def test_records_known_to_be_bad_are_skipped_and_counted():
    source = Numbered(bad=(3, 4))
    expected = take(10, source, max_bad_share=0.2)
    healed = Numbered()
    with loader(healed, max_bad_share=0.2, known_bad=["r3", "r4"]) as batches:
        assert list(batches.bad) == ["r3", "r4"]
        assert_equal([next(batches) for _ in range(10)], expected)
    known = {"r3": "torn", "r4": "worn"}
    with loader(Numbered(bad=(3, 4, 9)), max_bad_share=0.07, known_bad=known) as batches:
        with pytest.raises(DataError, match=r"3 of 30 records .* the last is r9"):
            drain(batches)
        assert batches.bad["r3"] == "torn"


def test_more_bad_records_than_the_share_stop_the_run():
    with loader(Numbered(bad=(3, 4, 5)), max_bad_share=0.1) as batches:
        for _ in range(10):  # exactly at the limit of 3
            next(batches)
    message = r"4 of 30 records cannot be used, more than the limit of 3 .* is r\d+: an image"
    with loader(Numbered(bad=(3, 4, 5, 6)), max_bad_share=0.1) as batches:
        with pytest.raises(DataError, match=message):
            drain(batches)
        with pytest.raises(DataError, match=message):  # asking again does not go on without them
            next(batches)


def test_a_source_without_a_usable_record_ends():
    batches = loader(Numbered(bad=range(30)), max_bad_share=1.0)
    with batches, pytest.raises(DataError, match="none of the 30 records"):
        next(batches)


class Unusable(Numbered):
    """Record 7 cannot even be read, record 2 has blank captions."""

    def __getitem__(self, index):
        if index == 7:
            raise DataError("row 8 is torn")
        record = super().__getitem__(index)
        return Record(record.id, record.image, ["", " \n"]) if index == 2 else record


def test_a_record_that_cannot_be_read_is_listed_by_index():
    with loader(Unusable(), max_bad_share=0.1) as batches:
        assert not {2, 7} & {*numbers([next(batches) for _ in range(4)])}
        assert batches.bad["record 7"] == "row 8 is torn"
        assert "no caption with any text" in batches.bad["r2"]


def test_record_ids_name_the_global_batch_replacements_included():
    source = Numbered(bad=(3, 4, 29))
    with loader(source, max_bad_share=0.2, process_index=1, process_count=2) as batches:
        ids = [batches.record_ids(step) for step in range(4)]
    whole = take(4, source, max_bad_share=0.2)
    assert [len(names) for names in ids] == [8] * 4
    for names, batch in zip(ids, whole, strict=True):
        assert [contract.hash_id(name) for name in names] == list(batch["id"])


def test_hard_texts_are_drawn_for_the_chosen_caption():
    negatives = [["not n1", "not n2", " ", "not n3"], ["not n4"], []]
    source = Numbered(negatives=negatives)
    plain = take(12)
    drawn = take(12, source, negatives=HardTexts(2), positives=HardTexts(1))
    second = WORDS(["second"])[0, 0]
    of_first = {tuple(WORDS([text])[0]) for text in ("not n1", "not n2", "not n3")}
    seen = collections.Counter()
    for before, batch in zip(plain, drawn, strict=True):
        contract.check(batch)
        assert batch["negative_text"].shape == (8, 2, 4)
        assert not batch["positive_mask"].any()
        for key in before:  # asking for negatives changes nothing else
            np.testing.assert_array_equal(before[key], batch[key])
        for row in range(8):
            texts = {tuple(text) for text in batch["negative_text"][row]}
            if batch["text"][row, 1] == second:
                assert batch["negative_mask"][row].tolist() == [True, False]
                assert tuple(batch["negative_text"][row, 0]) == tuple(WORDS(["not n4"])[0])
            else:
                assert batch["negative_mask"][row].all()
                assert texts < of_first
                assert len(texts) == 2
                seen.update(texts)
    assert set(seen) == of_first


def test_marks_of_functional_words_go_with_every_text():
    source = Numbered(negatives=[["not n1", "n2 not"], ["not n4"], []])
    options = {"source": source, "negatives": HardTexts(2), "positives": HardTexts(1)}
    marking = FunctionalWordTokenizer(WORDS, ["second", "not"])
    for plain, batch in zip(take(2, **options), take(2, tokenizer=marking, **options), strict=True):
        contract.check(batch)
        marked = {key for key in batch if key.endswith("_marks")}
        assert marked == {"text_marks", "negative_text_marks", "positive_text_marks"}
        assert_equal([plain], [{key: batch[key] for key in plain}])
        for key in marked:
            ids = batch[key.removesuffix("_marks")]
            for index, word in enumerate(marking.words):
                np.testing.assert_array_equal(batch[key] == 1 + index, ids == WORDS([word])[0, 0])
        for key in marked:
            with pytest.raises(DataError, match="all texts of a batch have marks, or none"):
                contract.check({name: x for name, x in batch.items() if name != key})
            with pytest.raises(DataError, match=f"batch.'{key}'. must have the shape of its ids"):
                contract.check({**batch, key: batch[key][..., 1:]})


def test_a_negative_with_the_tokens_of_its_caption_is_masked():
    tail = " first first first"
    source = Numbered(captions=["n0" + tail], negatives=[[f"n0{tail} not", "not n0", f"N0{tail}"]])
    (batch,) = take(1, source, negatives=HardTexts(3, {"from_record_in_order": 1.0}))
    same = (batch["negative_text"] == batch["text"][:, None]).all(axis=-1)
    assert same.any()
    np.testing.assert_array_equal(batch["negative_mask"], ~same)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 30, "process_count": 8}, "not divisible by 8 processes; use 24"),
        ({"batch_size": 0}, "not divisible"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"process_index": 2, "process_count": 2}, "process_index must be"),
        ({"max_bad_share": 2}, "max_bad_share"),
        ({"threads": 0}, "threads"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        loader(**options)
