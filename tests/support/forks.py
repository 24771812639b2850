"""Processes of the command line without the seconds of their imports: a server forks them.

The server, one for each process of tests, has imported everything and computed nothing by JAX. Each
fork is a process of its own: environment, signals, devices, exit code. Only Python's hash seed is
that of the server.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.support import compilations, interpreter

IMPORTED = (
    *("vlc_jax.evaluation.mode", "vlc_jax.train.loop", "vlc_jax.report", "vlc_jax.tools.export"),
    *(
        "vlc_jax.configs.scenes.clip",
        "vlc_jax.input_pipeline.commands.prepare",
        "grain",
        "scipy.stats",
    ),
    *("vlc_jax.report.page", "vlc_jax.setup.catalogue", "vlc_jax.plan.plan"),
    *("ml_collections.config_flags", "tensorboardX"),
)
ROOT = Path(__file__).resolve().parents[2]


class Job:
    """A forked process, used like a subprocess.Popen whose output is text."""

    def __init__(self, words: list[str], cwd: Path, env: dict[str, str]) -> None:
        """`words` are those of a command behind the name of the interpreter."""
        self.args, self.returncode = words, None
        address = _address(env)
        (out, to_out), (errors, to_errors) = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        self.stdout = open(out, encoding="utf-8")  # noqa: SIM115
        self.stderr = open(errors, encoding="utf-8")  # noqa: SIM115
        files = (nothing, to_out, to_errors)
        self._server, self.pid = interpreter.ask(address, words, str(cwd), env, files)
        for number in files:
            os.close(number)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = interpreter.receive(self._server)
            self._server.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Both outputs to their ends; a process that outlives `timeout` is killed."""
        texts = ["", ""]

        def read(index: int, file: io.TextIOBase) -> None:
            texts[index] = file.read()
            file.close()

        files = enumerate((self.stdout, self.stderr))
        threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in files]
        for thread in threads:
            thread.start()
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            error.stderr = f"process {self.pid}: {self.args}"
            raise
        for thread in threads:
            thread.join(10)
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_addresses: list[str] = []


def stand_in(env: dict[str, str]) -> str:
    """A program that is used like the interpreter, whose modules and files run in forks."""
    return str(_program(_address(env)))


def _program(address: str) -> Path:
    return Path(address).with_name("python")


def _address(env: dict[str, str]) -> str:
    """Of the server, started by the first job with its environment; it ends with this process."""
    if not _addresses:
        address = f"{tempfile.mkdtemp(prefix='forks-')}/socket"
        command = [sys.executable, "-m", "tests.support.forks", address]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        server = subprocess.Popen(command, cwd=ROOT, env=env, **pipes)
        if server.stdout.readline() != b"ready\n":
            raise ConnectionError("the server of forks did not start")
        atexit.register(_end, server)
        _addresses.append(address)
    return _addresses[0]


def _end(server: subprocess.Popen) -> None:
    """Lets it end by itself, so that the time of its forks counts as that of this process."""
    server.stdin.close()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def serve(address: str) -> None:
    """Forks a process for every connection, until the process that started it ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    _warm_up()
    folder, python = Path(interpreter.__file__).parent, sys.executable
    program = _program(address)
    program.write_text(
        f"#!{python} -S\nimport sys; sys.path.insert(0, {str(folder)!r})\n"
        f"import interpreter; interpreter.main({address!r}, {python!r})\n"
    )
    program.chmod(0o755)
    sys.executable = str(program)
    # What is imported stays: no fork looks through it for garbage, nor copies its pages.
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    print("ready", flush=True)
    running = set()
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        pid = os.fork()
        if pid == 0:
            listening.close()
            _attend(connection)
            return
        connection.close()
        running = {pid, *(each for each in running if os.waitpid(each, os.WNOHANG)[0] == 0)}
    for pid in running:
        os.waitpid(pid, os.WNOHANG)


def _warm_up() -> None:
    """Reads the fonts, which else every report would do again."""
    from vlc_jax.report import plot

    plot.curves("curve", "Curve", [("", [1, 2], [0.0, 1.0])])


def _attend(connection: socket.socket) -> None:
    """Reads a request, forks its process, and sends its id and, in the end, its exit code."""
    size = interpreter.receive(connection)
    request, files, *_ = socket.recv_fds(connection, 1, 3)
    request += connection.recv(size - 1, socket.MSG_WAITALL)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(*json.loads(request), files)
        return
    for number in files:
        os.close(number)
    interpreter.send(connection, pid)
    ended = os.pidfd_open(pid)
    if ended not in select.select([connection, ended], [], [])[0]:  # nobody waits for it
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        interpreter.send(connection, code)
    os._exit(0)


def _become(words: list[str], cwd: str, env: dict[str, str], files: list[int]) -> None:
    """Runs `-m MODULE ...` or `FILE ...` as an interpreter started with these words does."""
    import jax

    for number, target in zip(files, (0, 1, 2), strict=True):
        os.dup2(number, target)
        os.close(number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    devices = int(env.get("JAX_NUM_CPU_DEVICES", "1"))
    jax.config.update("jax_num_cpu_devices", devices)  # read at its import
    compilations.count()
    if words[0] == "-m":
        sys.path.insert(0, cwd)
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
