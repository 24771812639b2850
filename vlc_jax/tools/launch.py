"""Path of a file that starts runs elsewhere: for Slurm, TPU pods, GKE, SkyPilot (docs/clusters.md).

vlc-jax launch slurm.sbatch
sbatch --nodes=2 --gpus-per-node=8 "$(vlc-jax launch slurm.sbatch)" --config FILE --workdir DIR
cp "$(vlc-jax launch jobset.yaml)" .
"""

from pathlib import Path

from vlc_jax.input_pipeline.commands import addresses, command_line

FOLDER = Path(__file__).parents[1] / "launch"


def path(name: str) -> Path:
    """The file `name`."""
    return (FOLDER / name).resolve()


@addresses.allowed
def main(arguments: list[str] | None = None) -> None:
    parser = command_line.parser("launch", __doc__)
    files = sorted(file.name for file in FOLDER.iterdir() if file.is_file())
    parser.add_argument("name", choices=files)
    print(path(parser.parse_args(arguments).name))


if __name__ == "__main__":
    main()
