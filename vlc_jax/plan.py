"""--mode plan: compiles the step of a config for devices that need not be there, and prints what it
takes: memory by part, FLOPs, collectives, the time of a step at best, that of the whole run.

The time is a roofline: the largest of what the matrix products take at the peak, the memory traffic
at the peak bandwidth and the collectives at the peak of the interconnect. The first is a bound; the
traffic is XLA's estimate, which counts loops once and also what never leaves the chip.
"""

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import source_info_util

from vlc_jax import chips, devices, hlo, sharding, train_step
from vlc_jax.errors import UsageError
from vlc_jax.setup import Setup
from vlc_jax.setup.plan import Planned
from vlc_jax.state import State

GIB = 2**30
SECONDS_PER_DAY = 86_400
ADVICE = (
    "lower config.batch_size; set config.microbatch, which keeps the loss; "
    "config.model.remat=dots or block; config.mesh.fsdp, which splits parameters and moments; let "
    "a loss run as a ring or in chunks (implementation=ring|chunked). "
    "--config.plan.search=remat,microbatch tries them"
)


class Memory(NamedTuple):
    """Bytes of a device, by part.

    temporaries: activations, gradients and scores; of a refused program None.
    """

    parameters: int
    moments: int
    frozen: int
    batch: int
    temporaries: int | None
    total: int
    limit: float


class Plan(NamedTuple):
    """What a step takes of a device, and of time at best.

    refusal: why the compiler gave up; None for a program.
    flops: that a device executes, rematerialised ones included.
    collectives: None where the compiler's text could not be read.
    compute, traffic, interconnect: seconds; None where the chip's figures are not known.
    """

    planned: Planned
    memory: Memory
    compile_seconds: float
    refusal: str | None = None
    flops: float = 0.0
    program_bytes: float = 0.0
    collectives: Sequence[hlo.Collective] | None = ()
    compute: float | None = None
    traffic: float | None = None
    interconnect: float | None = None

    @property
    def fits(self) -> bool:
        return self.refusal is None and self.memory.total <= self.memory.limit

    @property
    def seconds(self) -> float | None:
        """Of a step, at best."""
        times = [t for t in (self.compute, self.traffic, self.interconnect) if t is not None]
        return max(times, default=None)


def make(planned: Planned) -> Plan:
    """Compiles a step and reads what the compiler says of it."""
    setup, mesh = planned.setup, planned.setup.mesh
    state, frozen = shapes(setup)
    device, count = mesh.devices.flat[0], mesh.size
    parts = {
        "parameters": sharding.shard_bytes(state.params),
        "moments": sharding.shard_bytes(state.opt_state),
        "frozen": sharding.shard_bytes(frozen),
        "batch": sharding.shard_bytes(planned.batch),
    }
    limit, start = devices.memory_limit(device), time.monotonic()
    try:
        program = train_step.compile_step(setup, state, frozen, planned.batch)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        total = max(_used(str(error)), math.ceil(limit) + 1)  # at least, where it does not say
        memory = Memory(**parts, temporaries=None, total=total, limit=limit)
        return Plan(planned, memory, time.monotonic() - start, refusal=str(error))
    seconds, sizes = time.monotonic() - start, program.memory_analysis()
    total = (
        sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        - sizes.alias_size_in_bytes  # of donated arguments
        + sizes.temp_size_in_bytes
        + sizes.generated_code_size_in_bytes
    )
    cost = program.cost_analysis() or {}
    try:
        collectives = hlo.collectives(program.as_text(), count)
    except jax.errors.JaxRuntimeError:  # a libtpu that is newer than jax writes what it cannot read
        collectives = None
    plan = Plan(
        planned,
        Memory(**parts, temporaries=sizes.temp_size_in_bytes, total=total, limit=limit),
        seconds,
        flops=executed_flops(planned) / count,
        program_bytes=cost.get("bytes accessed", 0.0),
        collectives=collectives,
    )
    found = chips.find(device.device_kind)
    if found is None:
        return plan
    chip = found[1]
    return plan._replace(
        compute=plan.flops / chip.flops,
        traffic=plan.program_bytes / chip.bandwidth,
        interconnect=None
        if collectives is None
        else sum(each.wire_bytes for each in collectives) / chip.interconnect,
    )


def shapes(setup: Setup) -> tuple[State, Any]:
    """Shapes and shardings of the state and of the frozen parameters."""
    parameters = setup.parameters
    frozen = sharding.place_shapes(setup.mesh, parameters.split(parameters.shapes)[1])
    return setup.state_shapes(frozen), frozen


def run(planned: Iterable[Planned]) -> bool:
    """Prints the plan of the first setting, and of further ones what fits; False if none does."""
    planned = iter(planned)
    first = make(next(planned))
    print(describe(first), flush=True)
    plans = [first]
    for each in planned:
        if len(plans) == 1:
            print(line(first))
        try:
            plans.append(make(each))
        except UsageError as error:  # a loss without that implementation, for example
            print(f"{_flags(each)}: {error}")
            continue
        print(line(plans[-1]), flush=True)
    if len(plans) > 1:
        print(front(plans))
    return any(plan.fits for plan in plans)


def describe(plan: Plan) -> str:
    """A plan in lines: memory, work, collectives, time."""
    planned, mesh, memory = plan.planned, plan.planned.setup.mesh, plan.memory
    count, kind = mesh.size, mesh.devices.flat[0].device_kind
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    lines = [
        f"{count:,} x {kind} ({axes}), batch {planned.batch_size:,}, "
        f"compiled in {plan.compile_seconds:.0f} s",
        "memory of a device, GiB:",
    ]
    for name in Memory._fields[:5]:
        if (size := getattr(memory, name)) is not None:
            lines.append(f"  {name:12}{size / GIB:9.3f}")
    share = memory.total / memory.limit
    verdict = "" if plan.fits else ": does not fit"
    lines.append(
        f"  {'in all':12}{memory.total / GIB:9.3f} of {memory.limit / GIB:.3f} "
        f"({share:.0%}){verdict}"
    )
    if not plan.fits:
        if plan.refusal is not None:
            lines.append(f"the compiler: {plan.refusal.strip().splitlines()[0]}")
        lines.append(f"largest arrays of the step, GiB, their share of one of {count:,} devices:")
        return "\n".join([*lines, *largest_arrays(planned), ADVICE])
    lines.append(
        f"FLOPs of a device and step: {planned.flops / count:.3e} of the towers and the head, "
        f"{plan.flops:.3e} with what is computed twice and the scores"
    )
    lines += [
        f"  {each.kind} x {each.times}: {each.wire_bytes / 1e6:,.1f} MB sent, {each.cause}"
        for each in (plan.collectives or ())[:8]
    ]
    if plan.collectives is None:
        lines.append("collectives are not known: jax cannot read the programs of this libtpu")
    return "\n".join([*lines, *_times(plan)])


def _times(plan: Plan) -> list[str]:
    """Lines of the time of a step and of the run, where the chip's figures are known."""
    if plan.seconds is None:
        return ["no time: the peak of these devices is not known"]
    planned, count = plan.planned, plan.planned.setup.mesh.size
    parts = {"compute": plan.compute, "memory": plan.traffic, "interconnect": plan.interconnect}
    listed = ", ".join(f"{k} {1e3 * v:.1f}" for k, v in parts.items() if v is not None)
    rate = planned.batch_size / plan.seconds
    peak = chips.find(planned.setup.mesh.devices.flat[0].device_kind)[1].flops
    mfu = planned.flops / count / plan.seconds / peak
    lines = [
        f"a step at best, ms: {1e3 * plan.seconds:.1f} ({listed}); "
        f"{rate:,.0f} examples/s, MFU {mfu:.2f}"
    ]
    examples = 10**9 if planned.steps is None else planned.steps * planned.batch_size
    days = examples / rate / SECONDS_PER_DAY
    return [
        *lines,
        f"{examples:,} examples at best: {days:.2f} days, {24 * days * count:,.0f} device-hours",
    ]


def line(plan: Plan) -> str:
    """A plan of a search in one line."""
    seconds = "" if plan.seconds is None else f"{1e3 * plan.seconds:9.1f} ms"
    fits = "" if plan.fits else "  does not fit"
    return f"{plan.memory.total / GIB:9.3f} GiB {seconds}  {_flags(plan.planned)}{fits}"


def front(plans: Sequence[Plan]) -> str:
    """The plans that fit and that no other one beats in both memory and time, and the flags of the
    fastest."""
    fitting = [plan for plan in plans if plan.fits]
    if not fitting:
        return f"nothing fits; {ADVICE}"
    best = [plan for plan in fitting if not any(_beats(other, plan) for other in fitting)]
    best.sort(key=lambda plan: (_time(plan), plan.memory.total))
    lines = ["fits, and nothing else needs less of both time and memory:", *map(line, best)]
    return "\n".join([*lines, f"fastest: {_flags(best[0].planned)}"])


def _time(plan: Plan) -> float:
    """By which plans are compared; without a chip's figures that of the work."""
    return plan.seconds if plan.seconds is not None else plan.flops


def _beats(one: Plan, other: Plan) -> bool:
    ours, theirs = ((_time(plan), plan.memory.total) for plan in (one, other))
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def _flags(planned: Planned) -> str:
    flags = (f"--config.{name}={value}" for name, value in planned.flags.items())
    return " ".join(flags) or "the config as it is"


def _used(refusal: str) -> int:
    """Bytes that a refused program would need, as the compiler says: "... (75.10G) exceeds"."""
    found = re.search(r"\(([\d.]+)([KMGT])\) exceeds", refusal)
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2])) if found else 0


def largest_arrays(planned: Planned, count: int = 5) -> list[str]:
    """Lines for the largest arrays that the step computes, with where; fused ones never exist."""
    setup = planned.setup
    found: dict[str, float] = {}
    for equation, _ in _equations(_jaxpr(planned)):
        for result in equation.outvars:
            if not hasattr(result.aval, "dtype") or not hasattr(result.aval.dtype, "itemsize"):
                continue  # keys of random numbers
            size = result.aval.size * result.aval.dtype.itemsize / setup.mesh.size
            where = source_info_util.summarize(equation.source_info)
            where = re.sub(r"^.*?/(?=vlc_jax/|site-packages/)", "", where)
            text = f"{result.aval.str_short()} {equation.primitive} at {where}"
            found[text] = max(found.get(text, 0), size)
    largest = sorted(found.items(), key=lambda item: -item[1])[:count]
    return [f"  {size / GIB:9.3f}  {text}" for text, size in largest]


def executed_flops(planned: Planned) -> float:
    """FLOPs of the matrix products and convolutions of a step on all devices, those of loops at
    each turn and those that rematerialisation computes again included."""
    total = 0.0
    for equation, times in _equations(_jaxpr(planned)):
        if equation.primitive.name == "dot_general":
            ((contracted, _), _) = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            depth = math.prod(left[axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            features = equation.params["dimension_numbers"].rhs_spec[0]
            depth = math.prod(kernel) // kernel[features]
        else:
            continue
        total += 2 * times * depth * equation.outvars[0].aval.size
    return total


def _jaxpr(planned: Planned) -> Any:
    state, frozen = shapes(planned.setup)
    with jax.set_mesh(planned.setup.mesh):
        step = train_step.make_step(planned.setup)
        return jax.make_jaxpr(step)(state, frozen, planned.batch).jaxpr


def _equations(jaxpr: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """The equations of a jaxpr, of those that hold jaxprs theirs, and how often all devices compute
    them."""
    for equation in jaxpr.eqns:
        values = jax.tree.leaves(list(equation.params.values()))
        inner = [getattr(value, "jaxpr", value) for value in values]
        inner = [each for each in inner if hasattr(each, "eqns")]
        turns = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        if equation.primitive.name == "shard_map":  # what one device computes
            turns = equation.params["mesh"].size
        for each in inner:
            yield from _equations(each, times * turns)
        if not inner:
            yield equation, times
