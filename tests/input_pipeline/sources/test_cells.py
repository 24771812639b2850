"""Lists in the cells of a table."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor

from vlc_jax.input_pipeline.sources import cells


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
