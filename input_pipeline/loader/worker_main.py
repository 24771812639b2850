"""Main module of a loader's worker process (see `workers.child_processes`).

It replaces the program's main module, which a spawned process would import again, together with jax
and any module that claims an accelerator. Imported anywhere else it does nothing.
"""

import logging
import os
import signal
import sys
import threading
import time


def prepare() -> None:
    """Shuts out accelerators, jax and the parent's signals; ends the process with its parent."""
    # for code that imports jax in spite of the next line
    os.environ["JAX_PLATFORMS"] = "cpu"
    # None makes `import jax` raise ImportError; Grain then uses `tree` instead. Each worker would
    # otherwise import jax, for nothing.
    sys.modules["jax"] = None  # type: ignore[assignment]
    # grain would report the missing jax
    logging.getLogger("absl").setLevel(logging.ERROR)
    # Ctrl-C and a scheduler's SIGTERM reach the whole process group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    # A killed parent cannot close its workers, which would wait for it for ever.
    while os.getppid() == parent:
        time.sleep(1)
    # sys.exit would end this thread only
    os._exit(1)


if __name__ == "__mp_main__":
    prepare()
