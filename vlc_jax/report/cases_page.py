"""Page of single cases: cases.html."""

from collections.abc import Sequence
from pathlib import Path

from vlc_jax.report import cases, page
from vlc_jax.report.read_workdir import Run
from vlc_jax.run import workdir_files

FOLDER = Path(__file__).parent


def write(runs: Sequence[Run], folder: Path, benchmarks: Sequence[str] = ()) -> Path:
    """Writes cases.html of one run or two into `folder`; returns its path.

    Raises NoCasesError as `cases.collect`.
    """
    data = cases.collect(runs, benchmarks)
    context = {
        "names": data["runs"],
        "paths": [run.path for run in runs],
        "notes": data["notes"],
        "css": "".join((FOLDER / name).read_text() for name in ("report.css", "cases.css")),
        "script": (FOLDER / "cases.js").read_text(),
        "data": cases.to_script(data),
    }
    text = page.environment().get_template("cases.html.jinja").render(context)
    folder.mkdir(parents=True, exist_ok=True)
    workdir_files.replace(folder / "cases.html", text)
    return folder / "cases.html"
