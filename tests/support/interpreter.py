"""Asks the server of forks for a process; as a program, it stands for the interpreter.

A command that a test runs starts others by `sys.executable`. In a fork that is a program of two
lines, which calls `main`: it becomes a fork too, for a module or a file, or else the interpreter.
Nothing but the standard library is imported here, since every such program does so.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence

NUMBER = 8  # bytes of a number on the wire


def send(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(NUMBER, "big", signed=True))


def receive(connection: socket.socket) -> int:
    data = connection.recv(NUMBER, socket.MSG_WAITALL)
    if len(data) < NUMBER:
        raise ConnectionError("the server of forks has ended")
    return int.from_bytes(data, "big", signed=True)


def ask(
    address: str, words: Sequence[str], cwd: str, env: dict[str, str], files: Sequence[int]
) -> tuple[socket.socket, int]:
    """The connection, on which the exit code will come, and the process id of a new fork.

    words: of a command, behind the name of the interpreter. files: its stdin, stdout and stderr.
    The fork is killed where the connection is closed before its end.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    request = json.dumps([list(words), cwd, env]).encode()
    send(connection, len(request))
    socket.send_fds(connection, [request[:1]], files)
    connection.sendall(request[1:])
    return connection, receive(connection)


def main(address: str, python: str) -> None:
    """Runs the command of sys.argv in a fork, or by `python`; ends as that does."""
    words = sys.argv[1:]
    if not words or not (words[0] == "-m" or words[0].endswith(".py")):
        os.execv(python, [python, *words])
    connection, pid = ask(address, words, os.getcwd(), dict(os.environ), (0, 1, 2))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = receive(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
