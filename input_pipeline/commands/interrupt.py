"""Ctrl-C and SIGTERM in a command: one line and exit code 130 or 143, no traceback.

Imports the standard library only.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds in which a command closes its files; then the process ends, in the middle of a call.
GRACE = 5.0
LINE = "interrupted; start the same command again"


@contextlib.contextmanager
def one_line(grace: float | None = GRACE) -> Iterator[None]:
    """Context manager: the first signal raises KeyboardInterrupt inside, so that files are closed.

    After it the process ends with one line: the text of the KeyboardInterrupt that leaves the
    context, or LINE. A second signal ends it at once.
    grace: None: no limit on the time until then.
    """
    stop = _Stop(grace)
    before = {number: signal.signal(number, stop.receive) for number in SIGNALS}
    is_over = False
    try:
        yield
        is_over = True
    except BaseException as error:
        if not stop.number:
            is_over = isinstance(error, SystemExit)
            raise
        # a library may have turned the interrupt into an error of its own
        text = str(error) if isinstance(error, KeyboardInterrupt) else ""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        stop.end(stop.number, text)
    finally:
        stop.is_over = True
        for number, handler in before.items():
            # Python gives signals back to the system while it ends: a command that is done would be
            # killed without a line
            signal.signal(number, signal.SIG_IGN if is_over else handler)
        stop.close()


class _Stop:
    """Handler of the signals, and a thread that ends the process where the handler cannot run.

    Python runs handlers on the main thread, between bytecodes: not during a compilation. The
    interpreter writes a byte into the pipe `_reading` as soon as a signal arrives.
    """

    def __init__(self, grace: float | None) -> None:
        self.number, self.is_over, self._grace = 0, False, grace
        self._ending, self._is_written = threading.Lock(), threading.Event()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, daemon=True).start()

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:
            return
        if self.number:
            self.end(number)
        self.number = number
        # an interrupt inside __del__ or on another thread: the thread ends the process
        sys.unraisablehook = threading.excepthook = lambda _: None
        raise KeyboardInterrupt

    def end(self, number: int, line: str = "") -> None:
        """Ends the process. Not sys.exit, which waits for threads: JAX's may crash meanwhile."""
        if self._ending.acquire(blocking=False):
            # os.write: the main thread may hold the lock of the buffered file
            os.write(sys.stderr.fileno(), f"{line or LINE}\n".encode())
            self._is_written.set()
        # Handler and watching thread may both be here: one of them writes the line. Not for ever:
        # the handler may have interrupted the writing on its own thread.
        self._is_written.wait(0.5)
        os._exit(128 + number)

    def close(self) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._writing)

    def _watch(self) -> None:
        first = 0
        while True:
            is_ready = select.select([self._reading], [], [], self._grace if first else None)[0]
            data = os.read(self._reading, 1) if is_ready else b""
            if is_ready and not data:  # closed
                os.close(self._reading)
                return
            if first and (not data or data[0] in SIGNALS):
                self.end(first)
            first = first or (data[0] if data[0] in SIGNALS else 0)
