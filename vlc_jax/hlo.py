"""Reading of compiled programs in XLA's text form (HLO): their collectives."""

import math
import re
from typing import NamedTuple

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{\s*$")
_CALL = re.compile(rf" ({'|'.join(KINDS)})(-start)?\(")
_WHILE = re.compile(r" while\(.*body=%?([\w.-]+)")
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"n":"(\d+)"\}')
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?%?([\w.-]+)")
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\]")
_GROUPS = re.compile(r"replica_groups=(?:\[(\d+),(\d+)\]|\{\{([\d,]*)\})")
_NAME = re.compile(r'op_name="([^"]*)"')
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_BITS = {"pred": 8, "bf16": 16}


class Collective(NamedTuple):
    """Collectives of one kind with one cause.

    times: how often a step runs them.   wire_bytes: what one device sends in all of these.
    cause: the operation and the line of the program that they come from.
    """

    kind: str
    times: int
    wire_bytes: float
    cause: str


def collectives(text: str, devices: int) -> list[Collective]:
    """The collectives of a compiled program, those that send most first.

    text: of `compiled.as_text()`.   devices: of the program, for groups that name none.
    A ring sends, of a group of n and an array of B bytes, B (n - 1) / n per device to gather or to
    scatter, twice that to reduce, and B to permute.
    """
    repeats = _repeats(text)
    found: dict[tuple[str, str], list[float]] = {}
    computation = ""
    for row in text.splitlines():
        if header := _COMPUTATION.match(row):
            computation = header[1]
        call = _CALL.search(row)
        if not call:
            continue
        sizes = [_bytes(kind, shape) for kind, shape in _ARRAY.findall(row[: call.start()])]
        if call[2] and call[1] == "all-gather":  # its operands, then its results
            sizes = sizes[len(sizes) // 2 :]
        elif call[2] and call[1] == "collective-permute":  # operand, result, two counters
            sizes = sizes[:1]
        size, group = sum(sizes), _group(row, devices)
        times = repeats.get(computation, 1)
        sent = times * size * _share(call[1], group)
        both = found.setdefault((call[1], _cause(row)), [0, 0.0])
        both[0], both[1] = both[0] + times, both[1] + sent
    all_ = [Collective(kind, int(n), sent, cause) for (kind, cause), (n, sent) in found.items()]
    return sorted(all_, key=lambda each: -each.wire_bytes)


def _share(kind: str, group: int) -> float:
    part = (group - 1) / group
    if kind == "reduce-scatter":  # the array of the text is the result, a part of what was sent
        return float(group - 1)
    return {"all-reduce": 2 * part, "collective-permute": 1.0}.get(kind, part)


def _repeats(text: str) -> dict[str, int]:
    """Computation -> how often a step runs it: the trips of the loops around it."""
    inside: dict[str, tuple[str, int]] = {}  # computation -> (the one that calls it, trips)
    computation = ""
    for row in text.splitlines():
        if header := _COMPUTATION.match(row):
            computation = header[1]
            continue
        loop, trips = _WHILE.search(row), _TRIPS.search(row)
        for name in _CALLED.findall(row):
            is_body = bool(loop and loop[1] == name and trips)
            inside[name] = (computation, int(trips[1]) if is_body and trips else 1)

    def count(name: str) -> int:
        total = 1
        while name in inside:
            name, trips = inside[name]
            total *= trips
        return total

    return {name: count(name) for name in inside}


def _group(row: str, devices: int) -> int:
    found = _GROUPS.search(row)
    if not found:
        return devices
    if found[2]:
        return int(found[2])
    return len(found[3].split(",")) if found[3] else devices


def _bytes(kind: str, shape: str) -> float:
    sizes = [int(size) for size in shape.split(",") if size]
    return math.prod(sizes) * _bits(kind) / 8


def _bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    digits = re.search(r"\d+", kind)  # f32, s8, u64, f8e4m3fn
    return int(digits[0]) if digits else 0


def _cause(row: str) -> str:
    name, source = _NAME.search(row), _SOURCE.search(row)
    words = [name[1].rpartition("/")[2] if name else "made by the compiler"]
    if source:
        file = re.sub(r"^.*/(?=vlc_jax/|site-packages/)", "", source[1])
        words.append(f"{file}:{source[2]}")
    return ", ".join(words)
