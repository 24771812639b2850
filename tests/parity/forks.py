"""Runs scripts in forks of a process that has imported torch and transformers, which takes seconds.

Each line of stdin is a JSON list: the file for the script's output, the script, its arguments. The
answer is the exit code, on a line of stdout.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch  # noqa: F401
from transformers import AutoImageProcessor, CLIPModel, SiglipModel  # noqa: F401

if __name__ == "__main__":
    for line in sys.stdin:
        output, *words = json.loads(line)
        if (pid := os.fork()) == 0:
            to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(to, 1)
            os.dup2(to, 2)
            sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
            break
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
