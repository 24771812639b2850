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

from tests.support import compilations

IMPORTED = (
    *("vlc_jax.evaluate", "vlc_jax.train", "vlc_jax.report", "vlc_jax.tools.export"),
    *("configs.scenes.clip", "input_pipeline.prepare", "grain", "scipy.stats"),
    *("vlc_jax.report.page", "vlc_jax.catalogue", "vlc_jax.plan"),
    *("ml_collections.config_flags", "tensorboardX"),
)
ROOT = Path(__file__).resolve().parents[2]
NUMBER = 8  # bytes of a number on the wire


def _send(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(NUMBER, "big", signed=True))


def _receive(connection: socket.socket) -> int:
    data = connection.recv(NUMBER, socket.MSG_WAITALL)
    if len(data) < NUMBER:
        raise ConnectionError("the server of forks has ended")
    return int.from_bytes(data, "big", signed=True)


class Job:
    """A forked process, used like a subprocess.Popen whose output is text."""

    def __init__(self, words: list[str], cwd: Path, env: dict[str, str]) -> None:
        """`words` are those of a command behind the name of the interpreter."""
        self.args, self.returncode = words, None
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_address(env))
        (out, to_out), (errors, to_errors) = os.pipe(), os.pipe()
        self.stdout = open(out, encoding="utf-8")  # noqa: SIM115
        self.stderr = open(errors, encoding="utf-8")  # noqa: SIM115
        request = json.dumps([words, str(cwd), env]).encode()
        _send(self._server, len(request))
        socket.send_fds(self._server, [request[:1]], [to_out, to_errors])
        self._server.sendall(request[1:])
        for number in (to_out, to_errors):
            os.close(number)
        self.pid = _receive(self._server)

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
            self.returncode = _receive(self._server)
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
    """Reads the fonts and compiles the templates, which else every report would do again."""
    from vlc_jax.report import page, plot

    for name in ("report.md", "report.html"):
        page.environment().get_template(f"{name}.jinja")
    plot.curve("curve", "Curve", [1, 2], [0.0, 1.0])


def _attend(connection: socket.socket) -> None:
    """Reads a request, forks its process, and sends its id and, in the end, its exit code."""
    size = _receive(connection)
    request, outputs, *_ = socket.recv_fds(connection, 1, 2)
    request += connection.recv(size - 1, socket.MSG_WAITALL)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(*json.loads(request), outputs)
        return
    for number in outputs:
        os.close(number)
    _send(connection, pid)
    _send(connection, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(words: list[str], cwd: str, env: dict[str, str], outputs: list[int]) -> None:
    """Runs `-m MODULE ...` or `FILE ...` as an interpreter started with these words does."""
    import jax

    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((nothing, 0), (outputs[0], 1), (outputs[1], 2)):
        os.dup2(number, target)
        os.close(number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    jax.config.update("jax_num_cpu_devices", int(env["JAX_NUM_CPU_DEVICES"]))  # read at its import
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
