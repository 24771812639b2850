"""Runs scripts in forks of a process that has imported the reference libraries.

  python tests/parity/forks.py REQUESTS ANSWERS

Both are named pipes. A request is a line: the file for the script's output, the script and its
arguments, with tabs between. The answer is a line: the exit code.
"""

import gc
import os
import runpy
import sys
from pathlib import Path

import peft  # noqa: F401
import torch  # noqa: F401
from transformers import AutoImageProcessor, CLIPModel, SiglipModel  # noqa: F401

from vlc_jax.tools.load_exported import without_torchvision

without_torchvision()  # after transformers, which shall not find these empty modules

import open_clip  # noqa: E402, F401


def main() -> None:
    gc.freeze()  # no fork looks through what is imported, nor copies its pages
    with open(sys.argv[1]) as requests, open(sys.argv[2], "w") as answers:
        for line in requests:
            output, *words = line.rstrip("\n").split("\t")
            if (pid := os.fork()) == 0:
                to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(to, 1)
                os.dup2(to, 2)
                sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
                runpy.run_path(words[0], run_name="__main__")
                return
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(code, file=answers, flush=True)


if __name__ == "__main__":
    main()
