"""What a loader's worker process runs before anything else (see `workers.child_processes`).

It takes the place of the program's main module, which a spawned process would import again, and
with it jax and whatever claims an accelerator. The words below act only in such a process.
"""

import logging
import os
import signal
import sys
import threading
import time


def prepare() -> None:
    """No accelerator, no jax, no signals meant for the parent, no life after it."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.modules["jax"] = None  # type: ignore[assignment]  # grain then uses `tree` instead
    logging.getLogger("absl").setLevel(logging.ERROR)  # grain would report the missing jax
    # Ctrl-C and a scheduler's SIGTERM reach the whole process group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """A killed parent cannot close its workers, which would wait for it for ever."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__mp_main__":
    prepare()
