"""Lists in the cells of a table."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import cells


@pytest.mark.parametrize(
    "text", ["['a'" + " " * 200_000 + "x", "['" + "\\'" * 200_000, "[b'a', b'b']"]
)
def test_damaged_lists_of_any_length_are_refused(text):
    with pytest.raises(DataError, match="row 1: 'texts' is not a list"):
        cells.read_captions(text, "texts", "row 1")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<" + "Array" * 200_000, None),  # ends, as the cells above do
        ("[a sign] beside a road", None),
        ("[1, 2]", [1, 2]),  # no captions for a record, which says so
        ("[['a'], ['b']]", [["a"], ["b"]]),
    ],
)
def test_only_lists_are_read_as_lists(text, value):
    assert cells.read_captions(text, "texts", "row 1") == (value or text)


def test_threads_read_lists_while_garbage_is_collected():
    """Without the lock Python 3.11 raises SystemError in a few of these hundred."""
    value = [["a horse", 'a caption\'s "other" words'] * 4] * 4
    row = {"texts": str(value)}
    thresholds = gc.get_threshold()

    def let_others_run(phase, info):
        time.sleep(1e-5)

    gc.callbacks.append(let_others_run)
    gc.set_threshold(5)  # so often that reading is interrupted
    try:
        with ThreadPoolExecutor(8) as pool:
            read = [*pool.map(lambda _: cells.read(row, "texts", "a table"), range(100))]
    finally:
        gc.callbacks.remove(let_others_run)
        gc.set_threshold(*thresholds)
    assert read == [value] * 100
