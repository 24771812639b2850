"""Mixtures: shares by weights, each source in its own order, a function of seed and position."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from tests.support.numbered import Numbered, loader, take
from vlc_jax.configs.common import pretrained
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.loader import inspection
from vlc_jax.input_pipeline.sources import make_source, mixture_order, order
from vlc_jax.input_pipeline.sources.mixture_order import MixtureOrder

SIZES = (5, 70, 20_000)


def weights(*numbers):
    return [Fraction(number) for number in numbers]


class Places:
    """An order whose index is its position, for ever."""

    def __getitem__(self, position):
        return position


SHARES = {
    "one phase": {0: weights("0.7", "0.05", "0.25")},
    "two sources end": {0: weights(1, 1, 1), 5_000: weights(0, 0, 2), 9_001: weights("1e-3", 1, 0)},
    "changes within a block": {0: weights(3, 1, 1), 10: weights(1, 3, 1), 17: weights(0, 0, 1)},
}


@pytest.mark.parametrize("name", SHARES)
def test_a_mixture_is_its_sources_in_their_orders_by_brute_force(name):
    shares = SHARES[name]
    firsts = [0, SIZES[0], SIZES[0] + SIZES[1]]
    made = MixtureOrder([Places()] * 3, SIZES, shares, seed=4)
    # an index is the first of a source and its place, which no other source reaches here
    far = MixtureOrder([Places()] * 3, [10**9] * 3, shares, seed=4)
    drawn, counts, in_phase = [], Counter(), Counter()
    starts = sorted(shares)
    for position in range(15_000):
        source, place = divmod(far[position], 10**9)
        assert place == counts[source]  # the next one of this source, none left out or twice
        assert made[position] == firsts[source] + place
        if position in shares:
            in_phase, phase = Counter(), position
        counts[source] += 1
        in_phase[source] += 1
        drawn.append(source)
        if (position - phase + 1) % mixture_order._BLOCK == 0:
            total = sum(shares[phase])
            for number, weight in enumerate(shares[phase]):
                expected = (position - phase + 1) * weight / total
                assert abs(in_phase[number] - expected) < len(SIZES)
        if position % 997 == 0 or position + 1 in starts:
            assert made.draws(position + 1) == [counts[number] for number in range(3)]
    assert made.draws(0) == [0, 0, 0]
    epochs = [counts[number] / size for number, size in enumerate(SIZES)]
    assert made.epochs(15_000) == epochs


def test_later_phases_change_nothing_before_them():
    first = {0: weights("0.7", "0.3", 0)}
    row = [MixtureOrder([Places()] * 3, [10**9] * 3, first, 1)[p] for p in range(0, 9_000, 1_000)]
    changed = MixtureOrder([Places()] * 3, [10**9] * 3, {**first, 8_500: weights(0, 0, 1)}, 1)
    assert [changed[p] for p in range(8_000, -1, -1_000)] == row[:9][::-1]
    assert changed[8_500] == 2 * 10**9
    other = MixtureOrder([Places()] * 3, [10**9] * 3, first, 2)
    assert [other[p] for p in range(0, 9_000, 1_000)] != row


def test_positions_beyond_any_float_are_exact():
    made = MixtureOrder([Places()] * 2, [10**9] * 2, {0: weights(1, 2)}, 0)
    position = 10**14 * mixture_order._BLOCK
    assert made.draws(position) == [position // 3, position - position // 3]


def test_phases_of_equal_weights_draw_places_of_their_own():
    half = weights(1, 1)
    made = MixtureOrder([Places()] * 2, [10**9] * 2, {0: half, mixture_order._BLOCK: half}, 0)
    drawn = [made[position] // 10**9 for position in range(2 * mixture_order._BLOCK)]
    assert drawn[: mixture_order._BLOCK] != drawn[mixture_order._BLOCK :]


def test_the_mixture_of_a_seed_is_that_of_earlier_versions():
    """numpy promises no order across versions; of numpy 2.4."""
    made = MixtureOrder([Places()] * 2, [100, 100], {0: weights("0.7", "0.3")}, 7)
    assert [made[position] for position in range(12)] == [100, 101, 0, 1, 2, 3, 4, 102, 5, 6, 7, 8]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two folders of shards, of 30 and 20 records with the same ids."""
    root = tmp_path_factory.mktemp("mixture")
    near = {"hard_images": ["r3", "r4"]}
    for name, count in (("a", 30), ("b", 20)):
        shard_writer.write(Numbered(count, **near), root / name, size=8, shard_size=8)
    return root


def mixed(folders, path="{0}/a:0.7+{0}/b:0.3", **options):
    return make_source("shards", "all", path=path.format(folders), **options)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize("shuffle", order.SHUFFLES)
def test_hosts_and_restarts_change_nothing_in_a_mixture(folders, shuffle):
    source = mixed(folders, weights={"3": [0, 1]}, shuffle=shuffle)
    options = {"source": source, "batch_size": 8}
    whole = ids(take(6, **options))
    assert ids(take(4, start_step=2, **options)) == whole[2:]
    halves = [ids(take(6, process_index=host, process_count=2, **options)) for host in (0, 1)]
    assert [a + b for a, b in zip(*halves, strict=True)] == whole
    with loader(**options) as batches:
        names = [batches.record_ids(step) for step in range(6)]
        for _ in range(6):
            next(batches)
        epochs = batches.epochs()
    counts = Counter(name[0] for name in itertools.chain(*names))
    assert epochs == {"a": counts["a"] / 30, "b": counts["b"] / 20}
    assert all(any(name[0] == "a" for name in step) for step in names[:3])
    assert {name[0] for name in itertools.chain(*names[3:])} == {"b"}
    # each folder is read to its end before it begins again
    from_b = [name for name in itertools.chain(*names) if name[0] == "b"]
    assert len({*from_b[:20]}) == 20


def test_hard_images_are_of_the_same_folder(folders):
    source = mixed(folders)
    with loader(source, batch_size=8, hard_images=1) as batches:
        names = batches.record_ids(0)
    assert [name[0] for name in names[::2]] == [name[0] for name in names[1::2]]
    assert {name[1:] for name in names[1::2]} <= {"/r3", "/r4"}
    assert source.find("b/r7").id == "b/r7" == source[37].id
    assert len(source) == 50


def test_without_weights_every_record_is_as_likely_as_any_other(folders):
    assert mixed(folders, "{0}/a+{0}/b").weights == {0: [30, 20]}
    alone = mixed(folders, "{0}/a")
    assert alone[0].id == "r0"
    prints = {mixed(folders, f"{{0}}/a:{w}+{{0}}/b:1").fingerprint for w in (1, 2)}
    assert len({*prints, alone.fingerprint}) == 3


def test_a_preview_looks_into_every_folder(folders):
    source = mixed(folders)
    for count, names in ((3, ["a/r0", "a/r1", "b/r0", "b/r1"]), (90, [s.id for s in source])):
        looked = [source[index].id for index in inspection._first(source, count)]
        assert looked == names
        assert inspection.inspect(source, count=count).counts["looked_at"] == len(names)


def test_a_config_reads_folders_with_weights_as_shards():
    for path in ("web:0.7+data/coco:.3", "web+coco", "gs://b/web:1+gs://b/coco:2", "web"):
        assert pretrained.source_of(path) == {"source": "shards", "path": path}
    for path in ("a.jsonl", "a.b:0.5", "x+y.json"):
        assert pretrained.source_of(path)["source"] == "records"


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("{0}/a:0.7+{0}/b", {}, "a weight for each folder, or for none"),
        ("{0}/a+{0}/a", {}, "names a folder twice"),
        ("{0}/a:0+{0}/b:0", {}, "weights from step 0 on: 2 numbers.*not all 0"),
        ("{0}/a+{0}/b", {"weights": {"9": [1]}}, "weights from step 9 on: 2 numbers"),
        ("{0}/a+{0}/b", {"weights": {"0": [1, 1]}}, "a step from 1 on and its weights; got '0'"),
        ("{0}/a+{0}/b", {"weights": {"1": "x"}}, "weights are a list of numbers; got 'x'"),
        ("{0}/a", {"weights": {"1": [1]}}, "belong to several folders"),
        ("{0}/a+{0}/c", {}, "/c holds no manifest.json"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(folders, path, options, message):
    with pytest.raises(ValueError, match=message):
        mixed(folders, path, **options)


def test_texts_of_two_versions_of_a_generator_are_not_mixed(tmp_path):
    for name, version in (("a", "1"), ("b", "2")):
        texts = {"negatives": {"negclip": version}}
        shard_writer.write(Numbered(), tmp_path / name, size=8, texts=texts)
    with pytest.raises(ValueError, match="negclip of the versions '1' and '2' cannot be mixed"):
        mixed(tmp_path, "{0}/a+{0}/b")


def test_two_folders_of_one_size_have_orders_of_their_own(tmp_path):
    for name in "ab":
        shard_writer.write(Numbered(), tmp_path / name, size=8)
    indices = order.make(mixed(tmp_path, "{0}/a+{0}/b"), 0)
    drawn = np.array([indices[position] for position in range(60)])
    first, second = drawn[drawn < 30], drawn[drawn >= 30] - 30
    least = min(len(first), len(second))
    assert (first[:least] != second[:least]).any()
