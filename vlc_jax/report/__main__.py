"""python -m vlc_jax.report WORKDIR [--baseline CONFIG_OR_WORKDIR]"""

import argparse
import sys
from pathlib import Path

from vlc_jax import report


def main(arguments: list[str] | None = None) -> int:
    """Writes the report and prints where it is; 2 and one line if that cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m vlc_jax.report", description=report.__doc__)
    parser.add_argument("workdir", type=Path, help="the --workdir of a run")
    parser.add_argument(
        "--baseline", type=Path, help="config.json, or a workdir, to show the config against"
    )
    options = parser.parse_args(arguments)
    try:
        print(report.write(options.workdir, options.baseline))
    except report.NotAWorkdirError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: the report cannot be written: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
