"""Path of a file that starts runs elsewhere: for Slurm, TPU pods, GKE, SkyPilot (docs/clusters.md).

sbatch --nodes=2 --gpus-per-node=8 "$(vlc-jax launch slurm.sbatch)" --config FILE --workdir DIR
cp "$(vlc-jax launch jobset.yaml)" .
"""

import sys
from pathlib import Path

from vlc_jax import errors
from vlc_jax.input_pipeline.commands import command_line

FOLDER = Path(__file__).parents[1] / "launch"


def path(name: str) -> Path:
    """The file `name`. Raises UsageError, with the nearest name, if there is none."""
    files = sorted(file.name for file in FOLDER.iterdir() if file.is_file())
    return (FOLDER / errors.known("file", name, files)).resolve()


def main(arguments: list[str] | None = None) -> int:
    parser = command_line.parser("launch", __doc__)
    parser.add_argument("name", help="a wrong one lists all")
    name = parser.parse_args(arguments).name
    return command_line.exit_code(lambda name: print(path(name)) or 0, name)


if __name__ == "__main__":
    sys.exit(main())
