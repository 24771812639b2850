"""Process of one side of a measurement: builds its step once, then answers questions."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Worker:
    """A process that prints its facts as a line of JSON, then a line per question.

    Sides are separate processes that wait while another works: all measure the same machine, and
    memory is counted per side.
    """

    def __init__(self, name: str, command: Sequence[str], **environment: str):
        self.name = name
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            text=True,
        )
        self.facts = self._read()

    def ask(self, question: str) -> dict:
        """The answer to one line on the worker's stdin."""
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the {self.name} side ended; its error is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
