"""The blocks order: every record once per epoch, few blocks at a time, a function of position."""

import numpy as np
import pytest

from tests.support.numbered import Numbered, loader, take
from vlc_jax.input_pipeline.record import Record
from vlc_jax.input_pipeline.sources import order
from vlc_jax.input_pipeline.sources.order import BLOCK, WINDOW, BlockOrder

SPAN = BLOCK * WINDOW


class Neighbours(Numbered):
    """Numbered records in shards, which notes what it is told to read ahead."""

    def __init__(self, count, shuffle="blocks"):
        super().__init__(count)
        self.shuffle, self.ahead = shuffle, []

    def __getitem__(self, index):
        pixels = np.full((8, 8, 3), index % 256, np.uint8)
        return Record(f"r{index}", pixels, [f"n{index % 30} first"])

    def read_ahead(self, indices):
        self.ahead.append(indices)

    def take_counts(self):
        return {}


def epoch(blocks: BlockOrder, count: int, number: int) -> list[int]:
    return [blocks[position] for position in range(number * count, (number + 1) * count)]


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("whole", [BLOCK, SPAN, SPAN + BLOCK, 2 * SPAN])
def test_every_epoch_of_blocks_visits_every_record_once(whole, more):
    count = whole + more
    blocks = BlockOrder(count, seed=3)
    for number in (0, 1_000_000):
        assert sorted(epoch(blocks, count, number)) == list(range(count))


def test_a_source_of_one_record_is_that_record_for_ever():
    assert epoch(BlockOrder(1, 0), 1, 5) == [0]


@pytest.mark.parametrize("count", [200, SPAN + 17])
def test_epochs_and_seeds_have_orders_of_their_own(count):
    orders = {tuple(epoch(BlockOrder(count, seed), count, n)) for seed in (0, 1) for n in (0, 1)}
    assert len(orders) == 4


def test_neighbouring_positions_are_of_blocks_far_apart():
    count = 40 * SPAN
    blocks = BlockOrder(count, 0)
    indices = np.array([blocks[position] for position in range(SPAN)]) // BLOCK
    assert len(set(indices)) == WINDOW
    assert np.ptp(indices) > count / BLOCK / 2  # blocks of a window come from all of the data
    assert 0.03 < np.mean(indices[1:] == indices[:-1]) < 0.1  # 1 of 16: the window is shuffled
    counts = np.bincount(indices[: SPAN // 4], minlength=count // BLOCK)
    assert counts.max() < BLOCK / 2  # and all of it, not record by record within blocks


def test_positions_in_a_row_touch_the_blocks_of_two_windows():
    count = 2 * SPAN + 3 * BLOCK + 100
    blocks = BlockOrder(count, 1)
    touched = np.array(epoch(blocks, count, 0) + epoch(blocks, count, 1)) // BLOCK
    for start in range(0, len(touched) - SPAN, 97):
        windows = 2 if (start + SPAN - 1) // count == start // count else 3  # the last is shorter
        assert len(set(touched[start : start + SPAN])) <= windows * WINDOW


@pytest.mark.parametrize(
    ("seed", "count", "first", "second_epoch"),
    [
        (0, 200, [79, 50, 181, 136, 58], [82, 80, 99, 104, 113]),
        (7, 10_000, [7446, 6853, 4156, 1416, 755], [14, 1010, 9141, 6782, 8876]),
    ],
)
def test_the_blocks_order_of_a_seed_is_that_of_earlier_versions(seed, count, first, second_epoch):
    """Neither Grain nor numpy promises its order across versions; of Grain 0.2.18, numpy 2.4."""
    blocks = BlockOrder(count, seed)
    assert [blocks[position] for position in range(5)] == first
    assert [blocks[count + position] for position in range(5)] == second_epoch


def test_a_position_alone_is_as_in_a_row():
    count = 2 * SPAN + 300
    whole = BlockOrder(count, 5)
    row = [whole[position] for position in range(2 * count)]
    for position in (0, SPAN - 1, SPAN, count - 1, count, count + SPAN + 1, 2 * count - 1):
        assert BlockOrder(count, 5)[position] == row[position]


def test_data_beyond_any_memory_cost_no_table():
    blocks = BlockOrder(10**12, 0)
    assert len({blocks[10**15 + position] for position in range(100)}) == 100


def test_only_sharded_sources_that_ask_for_it_are_read_by_blocks():
    assert isinstance(order.make(Neighbours(100), 0), BlockOrder)
    usual = [order.make(Numbered(100), 4)[position] for position in range(200)]
    asked = order.make(Neighbours(100, "global"), 4)
    assert [asked[position] for position in range(200)] == usual


def test_the_window_after_one_that_is_begun_is_read_ahead():
    count = 2 * SPAN + 30
    source = Neighbours(count)
    blocks = order.make(source, 2)
    expected = [epoch(blocks, count, 0)[i : i + SPAN] for i in range(0, count, SPAN)]
    expected.append(epoch(blocks, count, 1)[:SPAN])
    assert len(source.ahead) >= 3
    for number, told in enumerate(source.ahead[:3]):
        assert sorted(told) == sorted(expected[number] + expected[number + 1])


def test_restarts_and_hosts_together_are_the_unbroken_run(monkeypatch):
    monkeypatch.setattr(order, "BLOCK", 8)
    monkeypatch.setattr(order, "WINDOW", 2)
    options = {"batch_size": 16, "source": Neighbours(75)}

    def ids(steps, **more):
        return [batch["id"] for batch in take(steps, **options, **more)]

    whole = ids(12)
    np.testing.assert_array_equal(ids(5, start_step=7), whole[7:])
    shares = [ids(12, process_index=host, process_count=4) for host in range(4)]
    np.testing.assert_array_equal(np.concatenate(shares, axis=1), whole)
    assert len(set(np.concatenate(whole)[:75])) == 75
    with loader(**options) as batches:
        numbers = [int(name[1:]) for name in batches.record_ids(0)]
    assert len({number // 8 for number in numbers}) == 2
