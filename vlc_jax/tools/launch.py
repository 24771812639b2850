"""Path of a file that starts runs elsewhere (docs/clusters.md); without a name, the list of all.

sbatch --nodes=2 --gpus-per-node=8 "$(vlc-jax launch slurm.sbatch)" --config FILE --workdir DIR
cp "$(vlc-jax launch jobset.yaml)" .
"""

import sys
from pathlib import Path

import vlc_jax
from vlc_jax import errors
from vlc_jax.input_pipeline.commands import command_line

FOLDER = Path(vlc_jax.__file__).parent / "launch"


def path(name: str) -> Path:
    """The file `name`. Raises UsageError, with the nearest name, if there is none."""
    return (FOLDER / errors.known("file of vlc-jax launch", name, _files())).resolve()


def _files() -> list[str]:
    return sorted(file.name for file in FOLDER.iterdir() if file.is_file())


def main(arguments: list[str] | None = None) -> int:
    parser = command_line.parser("launch", __doc__)
    parser.add_argument("name", nargs="?", help="default: list all")

    def show(name: str | None) -> int:
        print(path(name) if name else "\n".join(_files()))
        return 0

    return command_line.exit_code(show, parser.parse_args(arguments).name)


if __name__ == "__main__":
    sys.exit(main())
