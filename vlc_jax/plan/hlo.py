"""Reads the collectives of a compiled program from XLA's text form (HLO)."""

import math
import re
from typing import NamedTuple

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{\s*$")
_CALL = re.compile(rf" ({'|'.join(KINDS)})(-start)?\(")
_WHILE = re.compile(r" while\(.*condition=%?([\w.-]+), body=%?([\w.-]+)")
_LIMIT = re.compile(r" s32\[\]\S* constant\((\d+)\)")
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"n":"(\d+)"\}')
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?%?([\w.-]+)")
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\]")
_GROUPS = re.compile(r"replica_groups=(?:\[(\d+),(\d+)\]|\{\{([\d,]*)\})")
_NAME = re.compile(r'op_name="([^"]*)"')
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_BITS = {"pred": 8, "bf16": 16}


class Collective(NamedTuple):
    """Collectives of one kind with one cause.

    times: number of executions in a step.   wire_bytes: sent by one device in all of them.
    cause: operation and source line of the program.
    """

    kind: str
    times: int
    wire_bytes: float
    cause: str


def collectives(text: str, devices: int) -> list[Collective]:
    """The collectives of a compiled program, sorted by bytes sent.

    text: `compiled.as_text()`.   devices: number of devices, for replica groups that list none.
    In a ring of n devices with an array of B bytes, each device sends B (n - 1) / n to gather or to
    scatter, twice as much to reduce, and B to permute.
    """
    repeats, frames = _repeats(text), _frames(text)
    totals: dict[tuple[str, str], list[float]] = {}
    computation = ""
    for row in text.splitlines():
        if header := _COMPUTATION.match(row):
            computation = header[1]
        call = _CALL.search(row)
        if not call:
            continue
        sizes = [_bytes(kind, shape) for kind, shape in _ARRAY.findall(row[: call.start()])]
        if call[2] and call[1] == "all-gather":  # the tuple has operands, then results
            sizes = sizes[len(sizes) // 2 :]
        elif call[2] and call[1] == "collective-permute":  # the tuple has operand, result, counters
            sizes = sizes[:1]
        size, group = sum(sizes), _group(row, devices)
        times = repeats.get(computation, 1)
        sent = times * size * _share(call[1], group)
        total = totals.setdefault((call[1], _cause(row, frames)), [0, 0.0])
        total[0], total[1] = total[0] + times, total[1] + sent
    all_ = [Collective(kind, int(n), sent, cause) for (kind, cause), (n, sent) in totals.items()]
    return sorted(all_, key=lambda collective: -collective.wire_bytes)


def _share(kind: str, group: int) -> float:
    part = (group - 1) / group
    # the text has the result's size, 1 / group of the operand's
    if kind == "reduce-scatter":
        return float(group - 1)
    return {"all-reduce": 2 * part, "collective-permute": 1.0}.get(kind, part)


def _repeats(text: str) -> dict[str, int]:
    """Computation -> its number of executions in a step: the trips of all loops around it."""
    inside: dict[str, tuple[str, int]] = {}  # computation -> (its caller, trips)
    limits: dict[str, int] = {}  # computation -> its largest constant: a loop condition's trips
    conditions: dict[str, str] = {}  # body -> condition
    computation = ""
    for row in text.splitlines():
        if header := _COMPUTATION.match(row):
            computation = header[1]
            continue
        if limit := _LIMIT.search(row):
            limits[computation] = max(limits.get(computation, 1), int(limit[1]))
        loop, trips = _WHILE.search(row), _TRIPS.search(row)
        if loop:
            conditions[loop[2]] = loop[1]
        for name in _CALLED.findall(row):
            is_body = bool(loop and loop[2] == name and trips)
            inside[name] = (computation, int(trips[1]) if is_body and trips else 1)
    # TPU programs have no known_trip_count
    for body, condition in conditions.items():
        caller, trips = inside[body]
        inside[body] = (caller, trips if trips > 1 else limits.get(condition, 1))

    def count(name: str) -> int:
        total = 1
        while name in inside:
            name, trips = inside[name]
            total *= trips
        return total

    return {name: count(name) for name in inside}


def _group(row: str, devices: int) -> int:
    match = _GROUPS.search(row)
    if not match:
        return devices
    if match[2]:
        return int(match[2])
    return len(match[3].split(",")) if match[3] else devices


def _bytes(kind: str, shape: str) -> float:
    sizes = [int(size) for size in shape.split(",") if size]
    return math.prod(sizes) * _bits(kind) / 8


def _bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    digits = re.search(r"\d+", kind)  # f32, s8, u64, f8e4m3fn
    return int(digits[0]) if digits else 0


def _frames(text: str) -> dict[str, tuple[str, str]]:
    """Id of a stack frame -> (file, line), from the tables at the start of some programs."""
    files = dict(re.findall(r'^(\d+) "([^"]*\.py)"$', text, re.M))
    locations = {
        key: (files.get(file, ""), line)
        for key, file, line in re.findall(r"^(\d+) \{file_name_id=(\d+) .*? line=(\d+)", text, re.M)
    }
    frames = re.findall(r"^(\d+) \{file_location_id=(\d+)", text, re.M)
    return {key: locations[location] for key, location in frames if location in locations}


def _cause(row: str, frames: dict[str, tuple[str, str]]) -> str:
    name, source, frame = (pattern.search(row) for pattern in (_NAME, _SOURCE, _FRAME))
    location = (source[1], source[2]) if source else frames.get(frame[1] if frame else "")
    words = [name[1].rpartition("/")[2] if name else "made by the compiler"]
    if location:
        file = re.sub(r"^.*/(?=vlc_jax/|site-packages/)", "", location[0])
        words.append(f"{file}:{location[1]}")
    return ", ".join(words)
