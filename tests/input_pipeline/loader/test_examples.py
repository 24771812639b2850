"""Hard images and hard texts of a batch: who gets which, whatever hosts, workers and restarts."""

import numpy as np
import pytest

from tests.support import generators, miniature
from tests.support.numbered import assert_equal, joined
from vlc_jax.input_pipeline import batch as contract
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers.byte_level import BytesTokenizer
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer

WORDS = WordTokenizer(6, words=[f"n{i}" for i in range(30)])
COUNT = 20
TABLE = {"numbers": generators.Numbers, "prefix": generators.Prefix}


class Neighbours:
    """Record i has id ri, grey level i and names r(i+1), r(i+2), r(i+3); some images are bad."""

    fingerprint = "neighbours"

    def __init__(
        self, bad=(), steps=(1, 2, 3), lacking=(), caption="n{}", is_lost=lambda number: False
    ):
        self._is_lost = is_lost
        self._bad, self._steps, self._lacking, self._caption = bad, steps, lacking, caption

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        pixels = np.full((12, 12, 3), index, np.uint8)
        steps = () if index in self._lacking else self._steps
        return Record(
            id=f"r{index}",
            image=b"broken" if index in self._bad else pixels,
            captions=[self._caption.format(index)],
            hard_images=[f"r{(index + step) % COUNT}" for step in steps],
            meta={"scene": {"name": f"n{index}"}},
        )

    def find(self, record_id):
        if int(record_id[1:]) >= COUNT or self._is_lost(int(record_id[1:])):
            raise DataError(f"no record {record_id}")
        return self[int(record_id[1:])]


def loader(source=None, tokenizer=WORDS, **options):
    options = {"batch_size": 12, "seed": 5, "hard_images": 2, "max_bad_share": 0.2} | options
    source = Neighbours() if source is None else source
    transform = ImageTransform(8, crop="random_resized", scale=(0.3, 1.0))
    return make_train(source, tokenizer, transform, **options)


def take(count, source=None, **options):
    with loader(source, **options) as batches:
        return [next(batches) for _ in range(count)]


def groups(batches, size=3):
    levels = [batch["image"][:, 0, 0, 0].astype(int) for batch in batches]
    return np.concatenate(levels).reshape(-1, size)


def made(side="negatives", kind="numbers", count=2, **options):
    return sampling.make_hard_texts(
        side, count=count, generators={kind: 1.0}, table=TABLE, **options
    )


def test_hard_images_follow_their_record_without_repetition():
    rows = groups(take(20))
    steps = (rows[:, 1:] - rows[:, :1]) % COUNT
    assert set(np.unique(steps)) == {1, 2, 3}
    assert (steps[:, 0] != steps[:, 1]).all()
    counts = np.bincount(steps.ravel(), minlength=4)[1:]
    assert counts.min() > 0.2 * steps.size


def test_main_rows_are_those_of_a_run_without_hard_images():
    alone = take(10, batch_size=4, hard_images=0)
    np.testing.assert_array_equal(groups(take(10))[:, 0], groups(alone, 1)[:, 0])
    assert sorted(groups(take(5))[:, 0]) == list(range(COUNT))  # an epoch, with 60 rows


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_and_restarts_do_not_change_hard_images_and_texts(hosts):
    options = {"negatives": made(), "positives": made("positives")}
    source = Neighbours(bad=(3, 4), lacking=(7,))
    whole = take(6, source, **options)
    assert_equal(take(2, source, start_step=4, **options), whole[4:])
    shares = [
        take(6, source, process_index=host, process_count=hosts, **options) for host in range(hosts)
    ]
    assert_equal(joined(shares), whole)


def test_worker_processes_find_images_and_texts_as_threads_do(tmp_path):
    miniature.write_coco(tmp_path)
    source = make_source(
        "negclip", "train", annotations=tmp_path / "train_neg_clip.tsv", images=tmp_path
    )
    options = {"negatives": made(), "tokenizer": BytesTokenizer(32), "batch_size": 6}
    options |= {"start_step": 3, "process_index": 1, "process_count": 2}
    expected = take(4, source, **options)
    assert_equal(take(4, source, workers=2, threads=1, **options), expected)


def test_rows_without_a_hard_image_get_the_next_record():
    clean, source = groups(take(10)), Neighbours(lacking=(7,))
    with loader(source) as batches:
        rows = groups([next(batches) for _ in range(10)])
        assert batches.stand_ins == 2 * np.sum(rows[:, 0] == 7) > 0
    np.testing.assert_array_equal(rows[rows[:, 0] == 7][:, 1:], [[8, 9]] * np.sum(rows[:, 0] == 7))
    others = rows[:, 0] != 7
    np.testing.assert_array_equal(rows[others], clean[others])


def test_bad_hard_images_give_way_to_other_hard_images_first():
    with loader(Neighbours(bad=(3,))) as batches:
        rows = groups([next(batches) for _ in range(10)])
        assert batches.stand_ins == 0
    assert 3 not in rows
    for row in rows[(rows[:, 0] == 1) | (rows[:, 0] == 2)]:
        assert {*row[1:]} == {row[0] + step for step in (1, 2, 3)} - {3}
    with loader(Neighbours(steps=(1, 2), is_lost=lambda number: number != 3)) as batches:
        mains = groups([next(batches)])[:, 0]
        assert batches.stand_ins == 8 - np.isin(mains, (1, 2)).sum()
        assert batches.bad == {}


def test_halves_of_ids_are_as_different_as_the_ids():
    ids = np.array([1, 2**32 + 1, 2**32, 5 * 2**32 + 7], np.uint64)
    assert contract.split_ids(ids).tolist() == [[1, 0], [1, 1], [0, 1], [7, 5]]
    assert contract.split_ids(ids).dtype == np.uint32


def test_generated_texts_belong_to_their_row_and_know_the_scene():
    words = {tuple(WORDS([f"n{i}"])[0, :1]): f"n{i}" for i in range(30)}
    plain, batches = take(3), take(3, negatives=made(), positives=made("positives"))
    seen = set()
    for before, batch in zip(plain, batches, strict=True):
        np.testing.assert_array_equal(before["image"], batch["image"])
        assert batch["negative_mask"].all()
        for row, level in enumerate(batch["image"][:, 0, 0, 0]):
            texts = batch["negative_text"][row]
            for text in texts:
                assert [words[(token,)] for token in text[:2]] == [f"n{level}"] * 2
            assert texts[0, 2] != texts[1, 2]
            seen |= {*texts[:, 2].tolist()}
        assert (batch["negative_text"] != batch["positive_text"]).any()  # streams of their own
    assert len(seen) > 15


def test_the_stream_of_a_text_is_the_seed_and_the_position():
    batches = [take(3, hard_images=0, seed=seed, negatives=made()) for seed in (1, 1, 2)]
    assert_equal(batches[0], batches[1])
    texts = [np.concatenate([batch["negative_text"] for batch in run]) for run in batches]
    assert (texts[0] != texts[2]).any()
    # the same records again, an epoch later, with other draws
    first, later = (take(1, hard_images=0, batch_size=20, start_step=s, negatives=made())[0]
                    for s in (0, 1))  # fmt: skip
    order = [np.argsort(batch["id"]) for batch in (first, later)]
    assert (first["id"][order[0]] == later["id"][order[1]]).all()
    assert (first["negative_text"][order[0]] != later["negative_text"][order[1]]).any()


def test_no_two_rows_share_their_draws():
    batches = take(5, Neighbours(caption="n1"), negatives=made())
    drawn = np.concatenate([batch["negative_text"][:, :, 2] for batch in batches])
    assert len(np.unique(drawn, axis=0)) > 50  # of 60 rows, each with 2 of 30 numbers


def test_a_caption_no_generator_reads_spoils_its_record():
    refusing = made(kind="prefix", options={"prefix": {"prefix": "n1 ", "refused": "n7"}})
    with loader(hard_images=0, negatives=refusing) as batches:
        rows = groups([next(batches) for _ in range(5)], 1)
        assert batches.bad == {"r7": "cannot tag 'n7'"}
    assert 7 not in rows


def test_ids_of_hard_images_that_no_record_has_are_refused():
    advice = r"20 hard images .* 'r\d+' \(no record r\d+\); .* like 'r0'.* set .* id_column"
    with pytest.raises(ValueError, match=advice):
        loader(Neighbours(steps=(1,), is_lost=lambda number: True))


def test_hard_images_of_which_none_can_be_decoded_are_refused():
    with pytest.raises(ValueError, match=r"hard images looked at, such as 'r1' \(.*image"):
        loader(Neighbours(bad=range(COUNT)))


def test_a_source_without_hard_images_is_refused():
    with pytest.raises(ValueError, match="none of 20 records looked at names any"):
        loader(Neighbours(steps=()))
    digits = make_source("digits", "test")
    with pytest.raises(ValueError, match="DigitsSource cannot be found by their id"):
        loader(digits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 16}, r"16 is not divisible by 1 processes, each with groups of 1 \+ 2.*15"),
        ({"process_count": 8}, "use 24"),
        ({"hard_images": -1}, "hard_images must be at least 0"),
        ({"negatives": HardTexts(1, fallback="self")}, "negatives: fallback='self'"),
        ({"positives": HardTexts(1, {"swap": 1.0})}, "no generator was made for 'swap'"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        loader(**options)
