"""python -m vlc_jax.report WORKDIR [WORKDIR ...] [--baseline CONFIG_OR_WORKDIR] [--out FOLDER]"""

import argparse
import sys
from pathlib import Path

from vlc_jax import report


def main(arguments: list[str] | None = None) -> int:
    """Writes the report or comparison and prints its path; returns 0, or 2 after an error."""
    parser = argparse.ArgumentParser(prog="python -m vlc_jax.report", description=report.__doc__)
    parser.add_argument(
        "workdirs",
        metavar="workdir",
        nargs="+",
        type=Path,
        help="the --workdir of a run; several are compared with the first",
    )
    parser.add_argument(
        "--baseline", type=Path, help="config.json, or a workdir, to show the config against"
    )
    parser.add_argument(
        "--out", type=Path, help="where comparison.html goes; default: beside the first workdir"
    )
    options = parser.parse_args(arguments)
    is_comparison = len(options.workdirs) > 1
    if is_comparison and options.baseline:
        return _refuse("--baseline belongs to one workdir; of several the first is the baseline")
    if options.out and not is_comparison:
        return _refuse("--out belongs to several workdirs; the report of one goes into it")
    try:
        if is_comparison:
            page = report.write_comparison(options.workdirs, options.out)
            report.print_comparison(options.workdirs)
        else:
            page = report.write(options.workdirs[0], options.baseline)
    except report.NotAWorkdirError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"the report cannot be written: {error}")
    print(page)
    return 0


def _refuse(reason: str) -> int:
    print(f"error: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
