"""Apache Beam as the engine of a work in parts: many workers, on this machine or a cluster.

The pipeline is Create(numbers of the parts) | Reshuffle | Map(write_part). This process opens the
source, which worker processes read from OUT (`job_file`), and counts the finished parts there.
Source and OUT are therefore on a file system of all workers, or in an object store. Beam may try a
part several times, or twice at once: its bytes are the same (`parts.Work`).
"""

import dataclasses
import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vlc_jax.input_pipeline.commands import job_file, parts
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath

# seconds between two looks at the finished parts, and how many times as long as a look takes
_PAUSE, _TIMES = 0.5, 10
# what a thread of that runner says when a worker process is killed; the runner itself would wait
_LOST = "Worker subprocess exited"


def engine(runner: str, flags: Sequence[str]) -> parts.Engine:
    """The engine of a runner by its name in Beam, with Beam's own flags.

    Raises ValueError if Beam is not installed or has no such runner; the engine raises
    ConnectionError if the pipeline fails.
    """
    try:
        from apache_beam.options import pipeline_options
    except ImportError as error:
        raise ValueError("--runner needs Apache Beam: pip install 'vlc_jax[beam]'") from error
    # the last one of a flag counts; unless told otherwise, workers do not tell what they begin
    words = ["--default_sdk_harness_log_level=WARNING", *flags]
    options = pipeline_options.PipelineOptions(words, runner=runner)
    made = _runner(runner, options)

    def run(work: parts.Work, report: parts.Report, advance: parts.Advance) -> None:
        with _permit(work) as (permit, digest):
            write = functools.partial(write_part, str(permit), digest)
            pipeline = _Thread(lambda: _run(made, options, work.count, write))
            for done in _watched(work, pipeline, advance):
                if not report(done):
                    permit.unlink(missing_ok=True)
        if pipeline.error is not None:
            raise ConnectionError(f"{runner} failed: {reason(pipeline.error)}") from pipeline.error

    return run


def reason(error: BaseException) -> str:
    """The line of an error that says why; indented ones are where, in Python and in Java."""
    lines = [line for line in str(error).splitlines() if line[:1].strip()]
    return lines[-1] if lines else repr(error)


def write_part(permit: str, digest: str, number: int) -> None:
    """Writes a part of a work, as long as the file `permit` exists.

    It is removed when too many records are bad, and when the next run in the folder begins: workers
    whose parent was killed may still be there.   digest: of the file of the work beside it.
    """
    is_wanted = any_path.of(permit).exists
    if is_wanted():
        _work(permit, digest).write(number, is_wanted)


@functools.lru_cache(maxsize=1)
def _work(permit: str, digest: str) -> parts.Work:
    return job_file.read(_data(any_path.of(permit)), digest)


def _data(permit: AnyPath) -> AnyPath:
    return permit.with_suffix(f".data{parts.PARTIAL}")


@contextmanager
def _permit(work: Any) -> Iterator[tuple[AnyPath, str]]:
    """The permit of a work, and the digest of its file."""
    work = dataclasses.replace(work, out=work.out.absolute())
    permit = work.out / f"{parts.JOB}{uuid.uuid4().hex}{parts.PARTIAL}"
    digest = job_file.write(_data(permit), work)
    permit.touch()
    try:
        yield permit, digest
    finally:
        permit.unlink(missing_ok=True)
        _data(permit).unlink(missing_ok=True)


def _runner(name: str, options: Any) -> Any:
    from apache_beam import runners

    if name == parts.DIRECT:
        return _direct_runner(options)
    try:
        return runners.create_runner(name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--runner={name}: {error}") from error


def _direct_runner(options: Any) -> Any:
    """Beam's DirectRunner without its first choice, the Prism runner: a program that it downloads,
    and that does not know --direct_num_workers."""
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability import fn_api_runner
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    # the options reach the workers in this way only
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    information = fn_runner.ExtendedProvisionInfo(provision)
    return fn_api_runner.FnApiRunner(provision_info=information)


def _run(runner: Any, options: Any, count: int, write: Callable[[int], None]) -> None:
    import apache_beam as beam

    pipeline = beam.Pipeline(runner=runner, options=options)
    _ = pipeline | beam.Create(range(count)) | beam.Reshuffle() | beam.Map(write)
    state = pipeline.run().wait_until_finish()
    if state not in (None, "DONE"):
        raise RuntimeError(f"the pipeline ended in the state {state}")


class _Thread(threading.Thread):
    """Calls a function; `error` is what it raised, or that a worker process of it was lost."""

    def __init__(self, function: Callable[[], None]) -> None:
        # daemon: a runner that waits for a lost worker must not keep this process
        super().__init__(daemon=True)
        self._function = function
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except Exception as error:
            self.error = error

    def is_running(self) -> bool:
        return self.is_alive() and self.error is None

    @contextmanager
    def started(self) -> Iterator[None]:
        before = threading.excepthook

        def hook(arguments: threading.ExceptHookArgs) -> None:
            if _LOST not in str(arguments.exc_value):
                before(arguments)
            elif self.error is None:
                self.error = RuntimeError("a worker process was killed")

        threading.excepthook = hook
        try:
            self.start()
            yield
        finally:
            threading.excepthook = before


def _watched(work: parts.Work, pipeline: _Thread, advance: Callable[[int], None]) -> Iterator[Any]:
    """Every part once it is finished, until the pipeline has ended."""
    seen, records = set[str](), 0
    with pipeline.started():
        is_running = True
        while is_running:
            is_running, start = pipeline.is_running(), time.monotonic()
            for path in work.out.glob(f"*{parts.DONE}"):
                number = int(path.name.split("-")[1])
                if path.name not in seen and (done := work.done(number)) is not None:
                    seen.add(path.name)
                    records += len(work.indices(number))
                    yield done
            advance(records)
            if is_running:
                pipeline.join(_PAUSE + _TIMES * (time.monotonic() - start))
