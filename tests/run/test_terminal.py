"""What stops a run is one line on the terminal, whatever its libraries have to say of it."""

import contextlib
import logging
import threading

import pytest

from tests.support import helpers
from vlc_jax.run import metrics, terminal
from vlc_jax.run.workdir import Workdir

# A limit on the size of files stops writes in the middle, as a full disk does.
SAVE = """
import logging as standard, resource, sys
from pathlib import Path
import jax.numpy as jnp
import numpy as np
from absl import flags, logging
from vlc_jax.run import terminal
from vlc_jax.run.checkpoint import Checkpoints, SaveError

flags.FLAGS(sys.argv[:1])
logging.use_absl_handler()
terminal.quieten()
logging.warning("said before")
standard.getLogger("gcsfs").error("out of retries")
standard.getLogger("fsspec.asyn").error("failed during asynchronous execution")
noise = np.random.default_rng(0).normal(size=(20, 15_000)).astype(np.float32)
arrays = {str(i): jnp.asarray(row) for i, row in enumerate(noise)}
checkpoints = Checkpoints(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
checkpoints.save(1, arrays)
try:
    checkpoints.wait()
except SaveError as error:
    print(error, file=sys.stderr)
"""


def test_a_save_that_finds_no_room_is_one_line(tmp_path):
    script = tmp_path / "save.py"
    script.write_text(SAVE)
    done = helpers.python(script, tmp_path / "checkpoints", code=0)
    # XLA's of a program from the compilation cache of tests, which other flags had compiled
    lines = [line for line in done.stderr.splitlines() if "cpu_aot_loader" not in line]
    assert len(lines) == 2, done.stderr
    warning, error = lines
    assert warning == "warning: said before"
    assert "could not save to" in error


@pytest.fixture
def full():
    """Opens a file on a full disk in place of another one, with something yet to be written."""
    files = []

    def replace(file):
        file.close()
        files.append(open("/dev/full", "w"))  # noqa: SIM115
        files[-1].write("a line")
        return files[-1]

    yield replace
    for file in files:
        with contextlib.suppress(OSError):
            file.close()


def test_a_log_on_a_full_disk_does_not_hide_how_the_run_ended(tmp_path, full):
    workdir = Workdir(tmp_path)
    workdir._handler.stream = full(workdir._handler.stream)
    workdir.close()
    Workdir(tmp_path).close()  # its lock is free


def test_tensorboard_is_closed_where_the_metrics_found_no_room(tmp_path, full):
    writer = metrics.MetricsWriter(tmp_path, 0)
    writer._file = full(writer._file)
    with pytest.raises(OSError, match="No space left on device"):
        writer.close()
    assert writer.boards["TensorBoard"]._writer.file_writer is None


def test_a_warning_is_its_message_without_glogs_prefix():
    record = logging.makeLogRecord({"levelname": "WARNING", "msg": "a %s", "args": ("note",)})
    assert terminal._PlainFormatter().format(record) == "warning: a note"


def test_a_thread_that_cannot_write_is_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", terminal._thread_failed)

    def write():
        raise OSError(28, "No space left on device")

    thread = threading.Thread(target=write, name="writer")
    thread.start()
    thread.join()
    assert "writer" in caplog.text
    assert "No space left on device" in caplog.text
    assert "Traceback" not in caplog.text
