"""Milliseconds of a training step of each method in the table of newer methods, alone on a machine.

  python -m studies.step_times --out runs/study --docs docs

trains STEPS steps of seed 0 of each method whose base run and stored features are in OUT, one after
the other and without evaluations, into OUT/times, and puts the medians into DOCS/results.parquet in
place of those of the study, whose runs share the machine. `studies/study.py --docs docs --rebuild`
writes the pages.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from studies import study, study_columns, study_results
from studies.study_plan import plan

STEPS = 40
FLAGS = (f"--config.steps={STEPS}", "--config.log_every=5", "--config.evals={}")


def measured(out: Path, names: Collection[str]) -> dict[str, study_results.Kept]:
    """Method -> the record of its run.   names: of runs that have values."""
    runs = {run.name: run for run in plan("abdf", 1)}
    records = {}
    pairs = [study_columns.CONTROLS[name] for name in study_columns.OF_TABLE]
    controls = [control for control, base in pairs if control != base]
    for name in dict.fromkeys([*study_columns.OF_TABLE, *controls]):
        if not (run := runs.get(f"{name}-0")):
            continue
        is_ready = all((out / name / "DONE").exists() for name in run.needed)
        if run.name not in names or run.tool != "train" or not is_ready:
            continue
        folder = out / "times" / run.name
        shutil.rmtree(folder, ignore_errors=True)
        words = study.command(run, out, FLAGS)
        words[words.index(str(out / run.name))] = str(folder)
        subprocess.run(words, check=True, capture_output=True)
        (folder / study.REQUEST).write_text(json.dumps({"config": run.config}))
        records[name] = study_results.record_of(folder)
        print(run.name, records[name].metrics, flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="folder of all runs")
    parser.add_argument("--docs", type=Path, required=True, help="folder of results.parquet")
    args = parser.parse_args()
    path = args.docs / study_results.VALUES
    values = study_results.read_values(path)
    records = measured(args.out.absolute(), values)
    for name, by_device in values.items():
        new = records.get(name.rsplit("-", 1)[0])
        old = by_device.get(new.device) if new else None
        if old and study_results.RECORD in old.metrics:
            step = new.metrics[study_results.RECORD]["step_ms"]
            old.metrics[study_results.RECORD]["step_ms"] = step
    study_results.write_values(path, values)


if __name__ == "__main__":
    main()
