"""Short texts about a run: status, overview, notable events, config differences."""

import datetime
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vlc_jax.report.read_workdir import Run, mapping

ROUTINE = ("start", "save", "evaluation", "done", "time")  # counted, not listed
MAX_SECONDS = 1e12
BAD = ("corrupt_checkpoint", "nonfinite", "bad_record")


def status(run: Run) -> dict[str, str]:
    """Status of the run: kind (done, failed, preempted, open), word and a sentence (text)."""
    step = run.metrics[-1]["step"] if run.metrics else None
    ended_at = (run.done or run.failed or {}).get("step")
    step = ended_at if isinstance(ended_at, int) else step
    where = "before the first logged step" if step is None else f"at step {step:,}"
    # FAILED explains more than the events before it
    if run.failed is not None:
        reason = str(run.failed.get("reason", "no reason was written"))
        code = run.failed.get("exit_code", "?")
        return {"kind": "failed", "word": "Failed", "text": f"Exit code {code} {where}: {reason}"}
    if run.done is not None and not run.config_problem:
        return {"kind": "done", "word": "Done", "text": f"Finished {where}."}
    when = ""
    if run.last_write is not None:
        moment = datetime.datetime.fromtimestamp(run.last_write, datetime.UTC)
        when = f" Last written {moment:%Y-%m-%d %H:%M} UTC."
    if run.config_problem:
        end = "Finished" if run.done is not None else "Not finished,"
        text = f"{end} {where}.{when} {run.config_problem}: repair or remove that file."
        return {"kind": "failed", "word": "Damaged", "text": text}
    if run.events and run.events[-1].get("event") == "preempted":
        text = f"Stopped by a signal {where}, state saved; the same command continues it.{when}"
        return {"kind": "preempted", "word": "Preempted", "text": text}
    # an event of training comes before its first logged step
    has_started = any(row.get("event") == "start" for row in run.events)
    if run.evaluations and not run.metrics and not has_started:
        count, requested = len(run.evaluations), run.config.get("evals")
        is_partial = isinstance(requested, dict) and len(requested) > count
        of = f" of {len(requested)}" if is_partial else ""
        word = "Evaluating" if of else "Evaluated"
        noun = "benchmark" if count == 1 and not of else "benchmarks"
        text = f"{count}{of} {noun} evaluated, nothing trained here.{when}"
        return {"kind": "open" if of else "done", "word": word, "text": text}
    text = f"Not finished, {where}.{when} If no process is running, the same command continues it."
    return {"kind": "open", "word": "Running", "text": text}


def overview(run: Run) -> list[tuple[str, str]]:
    """Overview of the run as (name, value) pairs without empty values: devices, steps, ..."""
    hardware = mapping(run.env.get("hardware"))
    devices = hardware.get("devices")
    kinds = ", ".join(map(str, devices)) if isinstance(devices, list) else str(devices or "")
    count = hardware.get("device_count") or (len(devices) if isinstance(devices, list) else "")
    processes = hardware.get("process_count")
    several = f", {processes} processes" if isinstance(processes, int) and processes > 1 else ""
    parameters = mapping(run.env.get("parameters"))
    by_part = ", ".join(
        f"{name} {_count(n)}" for name, n in parameters.items() if name != "total" and n
    )
    total = _count(parameters["total"]) if "total" in parameters else ""
    last = run.metrics[-1] if run.metrics else {}
    batch = run.config.get("batch_size")
    examples = last["step"] * batch if last and isinstance(batch, int) else None
    elapsed = last.get("time/elapsed_s")
    started = next((str(row["time"]) for row in run.events if "time" in row), "")
    values = [
        ("Model", str(mapping(run.env.get("scorer")).get("name") or "")),
        ("Devices", f"{count} × {kinds}{several}" if kinds else ""),
        ("Processor", str(hardware.get("cpu") or "")),
        ("Parameters", f"{total} ({by_part})" if total and by_part else total),
        ("Steps", _steps(last, run.config)),
        ("Examples seen", "" if examples is None else f"{examples:,}"),
        ("Training time", _duration(elapsed)),
        ("Goodput", _goodput(run.events)),
        ("Speed", _rate(last)),
        ("Loss", _loss(last)),
        ("Started", started.replace("T", " ").replace("+00:00", " UTC")),
        ("Commit", str(run.env.get("commit") or "")),
        *((f"Data, {split}", str(v)) for split, v in mapping(run.env.get("input")).items()),
    ]
    return [(name, value) for name, value in values if value]


def options(results: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(benchmarks, their options): reader, split, files, further options, and the weights if they
    are not of a step of the run. Benchmarks with equal options are listed together.

    results: contents of evals/<name>/<step>.json.
    """
    names: dict[str, list[str]] = {}
    for result in results:
        reader_options = mapping(result.get("reader_options") or result.get("options"))
        name, reader = str(result["benchmark"]).split("@")[0], result.get("reader")
        facts = {"reader": None if reader == name else reader, "split": reader_options.get("split")}
        facts |= {k: v for k, v in reader_options.items() if k not in facts}
        facts |= {"imported weights": result.get("weights")}
        words = {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items() if v}
        text = "; ".join(f"{key} {value}" for key, value in words.items())
        names.setdefault(text, []).append(str(result["benchmark"]))
    return [(", ".join(each), text) for text, each in names.items() if text]


def notable(events: list[dict[str, Any]]) -> list[tuple[str, str, str, str, bool]]:
    """(time, event, details, step, whether it is bad) of events that are listed, oldest first."""
    return [
        (
            str(row.get("time", "")).replace("T", " ").replace("+00:00", ""),
            str(row.get("event")),
            _event_text(row),
            str(row.get("step", "")),
            row.get("event") in BAD,
        )
        for row in events
        if row.get("event") not in ROUTINE
    ]


def _event_text(row: dict[str, Any]) -> str:
    rest = {k: v for k, v in row.items() if k not in ("time", "event", "step")}
    text = "; ".join(f"{k}: {v if isinstance(v, str) else json.dumps(v)}" for k, v in rest.items())
    return text if len(text) <= 400 else f"{text[:400]} ..."


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested config as {"a.b.c": value as JSON}; an empty mapping is a value."""
    flat = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value)
    return flat


def side_by_side(columns: Sequence[Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """(name, its value in each column), in order of appearance; "" if a column lacks it."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name, "") for column in columns]) for name in names]


def differences(columns: Sequence[Mapping[str, str] | None]) -> list[tuple[str, list[str]]]:
    """Rows of `side_by_side` whose values are not all equal; a column None has "" and is not
    compared."""
    rows = side_by_side([column or {} for column in columns])
    compared = [column is not None for column in columns]
    return [row for row in rows if len({*itertools.compress(row[1], compared)}) > 1]


def _steps(last: dict[str, Any], config: dict[str, Any]) -> str:
    total = config.get("steps")
    of = f" of {total:,}" if isinstance(total, int) else ""
    return f"{last['step']:,}{of}" if last else ""


def _loss(last: dict[str, Any]) -> str:
    loss, share = last.get("train/loss"), last.get("train/loss_over_log_batch")
    if not isinstance(loss, int | float):
        return ""
    return f"{loss:.3f}" + (f" ({share:.2f} ln B)" if isinstance(share, int | float) else "")


def _rate(last: dict[str, Any]) -> str:
    rate, mfu = last.get("perf/examples_per_s"), last.get("perf/mfu")
    if not isinstance(rate, int | float):
        return ""
    return f"{rate:,.0f} examples/s" + (
        f", MFU {100 * mfu:.0f} %" if isinstance(mfu, int | float) else ""
    )


# name in an event "time" -> in the report
TIMES = {
    "steps": "in steps",
    "input": "waiting for data",
    "compilation": "compilation",
    "checkpoints": "checkpoints",
    "evaluation": "evaluation",
}


def _goodput(events: Sequence[Mapping[str, Any]]) -> str:
    """Shares of the wall time between the first start and the last event; "" if unknown.

    With several starts, time that none of them counted is of restarts: the pause before one, its
    imports, and the work that a killed start lost.
    """
    starts, spent, start_times = 0, dict.fromkeys(TIMES, 0.0), dict[str, float]()
    begun = ended = None
    for row in [*events, {"event": "start"}]:
        if row.get("event") in ("start", "resume"):
            spent = {kind: spent[kind] + start_times.get(kind, 0.0) for kind in TIMES}
            start_times, starts = {}, starts + 1
            begun = begun or _seconds(row.get("time"))
        elif row.get("event") == "time":
            start_times = {
                kind: float(value)
                for kind, value in mapping(row.get("seconds")).items()
                if isinstance(value, int | float) and 0 <= value < MAX_SECONDS
            }
        if row.get("event") in ("time", "done", "preempted", "nonfinite", "resume"):
            ended = _seconds(row.get("time")) or ended
    if not (begun and ended and sum(spent.values())):
        return ""
    # the times of events have whole seconds
    wall = max(ended - begun, sum(spent.values()))
    spent |= {"restarts" if starts > 2 else "other": wall - sum(spent.values())}
    shares = [
        f"{100 * seconds / wall:.1f} % {TIMES.get(kind, kind)}"
        for kind, seconds in spent.items()
        if kind == "steps" or seconds >= 0.0005 * wall
    ]
    return f"{shares[0]} of {_duration(wall)}; {', '.join(shares[1:])}".rstrip("; ")


def _seconds(time: Any) -> float | None:
    """Seconds since the epoch of an event's time."""
    try:
        return datetime.datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _duration(seconds: Any) -> str:
    # MAX_SECONDS: timedelta would overflow
    if not isinstance(seconds, int | float) or not 0 <= seconds < MAX_SECONDS:
        return ""
    return str(datetime.timedelta(seconds=round(seconds)))


def _count(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else str(number)


def command(value: Any) -> str:
    """Command line as one string, from a string or a list in env.json."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value or "")
