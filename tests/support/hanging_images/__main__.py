"""`python -m vlc_jax.main` with the pictures of sitecustomize.py, in its workers, too."""

import os
import sys
from pathlib import Path

from tests.support.hanging_images import sitecustomize  # noqa: F401  # reads pipes
from vlc_jax import main
from vlc_jax.setup import command_line

if __name__ == "__main__":
    folder = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(folder.parents[2])])
    command_line.parse_flags(["hanging_images", *sys.argv[1:]])
    main.main(["hanging_images"])
