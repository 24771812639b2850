"""--mode plan: compiles a step for devices that need not be attached, and prints its cost.

The cost is memory by part, FLOPs, collectives, and the shortest time of a step and of the run. The
time is a roofline: the maximum of the matrix products at peak FLOP/s, the memory traffic at peak
bandwidth and the collectives at peak interconnect bandwidth. The first is a lower bound; the
traffic is XLA's estimate, which counts loops once, and also data that never leaves the chip.
"""

import math
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax

from vlc_jax.devices import runtime, sharding
from vlc_jax.errors import UsageError
from vlc_jax.plan import hlo, step_jaxpr
from vlc_jax.setup import plan_search
from vlc_jax.setup.plan_search import Planned
from vlc_jax.train import compiled_step
from vlc_jax.train.flops import Flops

GIB = 2**30
SECONDS_PER_DAY = 86_400
UNKNOWN_EXAMPLES = 10**9  # assumed for a run whose length depends on its number of records
ADVICE = (
    "lower config.batch_size; set config.microbatch, which keeps the loss; "
    "config.model.remat=dots or block; config.mesh.fsdp, which splits parameters and moments; let "
    "a loss run as a ring or in chunks (implementation=ring|chunked). "
    "--plan_search=remat,microbatch tries them"
)


class Memory(NamedTuple):
    """Memory per device in bytes, by part.

    temporaries: activations, gradients and scores; None for a program that does not compile.
    """

    parameters: int
    moments: int
    frozen: int
    batch: int
    temporaries: int | None
    total: int
    limit: float


class Plan(NamedTuple):
    """Memory per device and shortest time of a step.

    refusal: the compiler's error; None for a compiled program.
    flops: of one device.
    collectives: None if the compiler's text cannot be read.
    compute, traffic, interconnect: seconds; None for an unknown chip.
    """

    planned: Planned
    memory: Memory
    compile_seconds: float
    refusal: str | None = None
    flops: Flops = Flops(0.0, 0.0)
    program_bytes: float = 0.0
    collectives: Sequence[hlo.Collective] | None = ()
    compute: float | None = None
    traffic: float | None = None
    interconnect: float | None = None

    @property
    def fits(self) -> bool:
        """True if the step is compiled and its memory is below the limit."""
        return self.refusal is None and self.memory.total <= self.memory.limit

    @property
    def seconds(self) -> float | None:
        """Shortest time of a step in seconds, the maximum of the three; None: unknown chip."""
        times = [t for t in (self.compute, self.traffic, self.interconnect) if t is not None]
        return max(times, default=None)


def make(planned: Planned) -> Plan:
    """Compiles a step and reads the compiler's analyses of it."""
    mesh, step = planned.setup.mesh, step_jaxpr.program(planned)
    device, count = sharding.one_device(mesh), mesh.size
    parts = {name: sharding.shard_bytes(part) for name, part in step.parts.items()}
    limit, start = runtime.memory_limit(device), time.monotonic()
    # a large step compiles for minutes
    where = f"{count:,} x {runtime.kind(device)}"
    print(f"compiling for {where}: {_flags(planned)}", file=sys.stderr, flush=True)
    try:
        compiled = _compile(planned, step)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        # a message without a figure: just above the limit, so that the plan does not fit
        total = max(_used(str(error)), math.ceil(limit) + 1)
        memory = Memory(**parts, temporaries=None, total=total, limit=limit)
        return Plan(planned, memory, time.monotonic() - start, refusal=str(error))
    program, flops = compiled
    seconds, sizes = time.monotonic() - start, program.memory_analysis()
    total = (
        sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        - sizes.alias_size_in_bytes  # outputs in the memory of donated arguments
        + sizes.temp_size_in_bytes
        + sizes.generated_code_size_in_bytes
    )
    cost = program.cost_analysis() or {}
    try:
        collectives = hlo.collectives(program.as_text(), count)
    except jax.errors.JaxRuntimeError:  # jax cannot read programs of a newer libtpu
        collectives = None
    plan = Plan(
        planned,
        Memory(**parts, temporaries=sizes.temp_size_in_bytes, total=total, limit=limit),
        seconds,
        flops=Flops(flops.model / count, flops.executed / count),
        program_bytes=cost.get("bytes accessed", 0.0),
        collectives=collectives,
    )
    chip = runtime.chip(device)
    if chip is None:
        return plan
    return plan._replace(
        compute=plan.flops.executed / chip.flops,
        traffic=plan.program_bytes / chip.bandwidth,
        interconnect=None
        if collectives is None
        else sum(collective.wire_bytes for collective in collectives) / chip.interconnect,
    )


def _compile(planned: Planned, step: step_jaxpr.Program) -> compiled_step.Compiled:
    setup = planned.setup
    if not planned.is_scored:
        return compiled_step.compile_step(setup, *step.arguments)
    with jax.set_mesh(setup.mesh):
        replicated = sharding.replicated(setup.mesh)
        function = jax.jit(step.function, out_shardings=replicated)
        return compiled_step.compile_and_count(function, *step.arguments)


def run(steps: plan_search.Steps) -> bool:
    """Prints the plan of the first setting in full, further ones in a line each.

    Returns False if none fits.
    """
    first = make(next(steps))
    print(describe(first), flush=True)
    plans, fits = [first], first.fits
    while True:
        try:
            planned = steps.send(fits)
        except StopIteration:
            break
        if len(plans) == 1:
            print(line(first))
        try:
            plans.append(make(planned))
        except UsageError as error:  # such as a loss without this implementation
            print(f"{_flags(planned)}: {error}")
            fits = False
            continue
        fits = plans[-1].fits
        print(line(plans[-1]), flush=True)
    if len(plans) > 1:
        print(front(plans))
    return any(plan.fits for plan in plans)


def table(steps: Iterable[tuple[str, Planned | UsageError]]) -> bool:
    """Prints a row for each slice, with the config's batch. Returns False if none fits."""
    heads = ("slice", "chips", "batch", "GiB of", "step, ms", "examples/s", "MFU", "device-hours")
    print("".join(f"{head:>13}" for head in heads))
    any_fits = False
    for name, planned in steps:
        if isinstance(planned, UsageError):
            print(f"{name:>13}  {planned}", flush=True)
            continue
        plan = make(planned)
        any_fits |= plan.fits
        memory = f"{plan.memory.total / GIB:.1f} {plan.memory.limit / GIB:.1f}"
        cells = [name, f"{planned.setup.mesh.size:,}", f"{planned.batch_size:,}", memory]
        if not plan.fits:
            cells.append("does not fit")
        elif speed := rate(plan):
            cells += [f"{1e3 * plan.seconds:.1f}", f"{speed.per_second:,.0f}"]
            cells += [f"{speed.mfu:.2f}", f"{speed.device_hours:,.0f}"]
        print("".join(f"{cell:>13}" for cell in cells), flush=True)
    print(f"device-hours of the run; {UNKNOWN_EXAMPLES:,} examples where epochs say its length")
    return any_fits


def describe(plan: Plan) -> str:
    """Text of a plan: memory, FLOPs, collectives and time."""
    planned, mesh, memory = plan.planned, plan.planned.setup.mesh, plan.memory
    count, device = mesh.size, sharding.one_device(mesh)
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    lines = [
        f"{count:,} x {runtime.kind(device)} ({axes}), batch {planned.batch_size:,}, "
        f"compiled in {plan.compile_seconds:.0f} s",
        "memory of a device, GiB:",
    ]
    for name in Memory._fields[:5]:
        if (size := getattr(memory, name)) is not None:
            lines.append(f"  {name:12}{size / GIB:9.3f}")
    if memory.temporaries is not None:
        lines += _temporaries(plan)
    share = memory.total / memory.limit
    verdict = "" if plan.fits else ": does not fit"
    lines.append(
        f"  {'in all':12}{memory.total / GIB:9.3f} of {memory.limit / GIB:.3f} "
        f"({share:.0%}){verdict}"
    )
    if runtime.shares_host_memory(device):
        lines.append(f"the limit is the host's memory, shared among its {count:,} CPU devices")
    if not plan.fits:
        if plan.refusal is not None:
            lines.append(f"the compiler: {plan.refusal.strip().splitlines()[0]}")
        lines.append(f"largest arrays of the step, GiB, their share of one of {count:,} devices:")
        return "\n".join([*lines, *step_jaxpr.largest_arrays(planned), ADVICE])
    lines.append(
        f"FLOPs of a device and step: {plan.flops.model:.3e} of the model, "
        f"{plan.flops.executed:.3e} with rematerialisation"
    )
    lines += [
        f"  {one.kind} x {one.times}: {one.wire_bytes / 1e6:,.1f} MB sent, {one.cause}"
        for one in (plan.collectives or ())[:8]
    ]
    if plan.collectives is None:
        lines.append("collectives are not known: jax cannot read the programs of this libtpu")
    return "\n".join([*lines, *_times(plan)])


def _temporaries(plan: Plan) -> list[str]:
    parts = step_jaxpr.temporaries(plan.planned)
    other = plan.memory.temporaries - sum(parts.values())
    lines = [f"    {name:27}{size / GIB:9.3f} estimated" for name, size in parts.items()]
    if other >= 0:
        return [*lines, f"    {'other temporaries':27}{other / GIB:9.3f} the remainder"]
    return [*lines, "    the estimates exceed the temporaries: not all arrays are alive at once"]


class Rate(NamedTuple):
    """Highest speed of a step, and shortest time of a run of `examples` examples."""

    per_second: float
    mfu: float
    examples: int
    days: float
    device_hours: float


def rate(plan: Plan) -> Rate | None:
    """Speed of a plan; None for an unknown chip."""
    if plan.seconds is None:
        return None
    planned, mesh = plan.planned, plan.planned.setup.mesh
    per_second = planned.batch_size / plan.seconds
    peak = runtime.chip(sharding.one_device(mesh)).flops
    mfu = plan.flops.model / plan.seconds / peak
    steps = planned.steps
    examples = UNKNOWN_EXAMPLES if steps is None else steps * planned.batch_size
    days = examples / per_second / SECONDS_PER_DAY
    return Rate(per_second, mfu, examples, days, 24 * days * mesh.size)


def _times(plan: Plan) -> list[str]:
    """Lines of the time of a step and of the run."""
    speed = rate(plan)
    if speed is None:
        return ["no time: the peak of these devices is not known"]
    parts = {"compute": plan.compute, "memory": plan.traffic, "interconnect": plan.interconnect}
    listed = ", ".join(f"{k} {1e3 * v:.1f}" for k, v in parts.items() if v is not None)
    return [
        f"a step at best, ms: {1e3 * plan.seconds:.1f} ({listed}); "
        f"{speed.per_second:,.0f} examples/s, MFU {speed.mfu:.2f}",
        f"{speed.examples:,} examples at best: {speed.days:.2f} days, "
        f"{speed.device_hours:,.0f} device-hours",
    ]


def line(plan: Plan) -> str:
    """A plan of a search in one line."""
    seconds = "" if plan.seconds is None else f"{1e3 * plan.seconds:9.1f} ms"
    fits = "" if plan.fits else "  does not fit"
    return f"{plan.memory.total / GIB:9.3f} GiB {seconds}  {_flags(plan.planned)}{fits}"


def front(plans: Sequence[Plan]) -> str:
    """Text of the Pareto front of memory and time among fitting plans, and the fastest's flags."""
    fitting = [plan for plan in plans if plan.fits]
    if not fitting:
        return f"nothing fits; {ADVICE}"
    best = [plan for plan in fitting if not any(_beats(other, plan) for other in fitting)]
    best.sort(key=lambda plan: (_time(plan), plan.memory.total))
    lines = ["fits, and nothing else needs less of both time and memory:", *map(line, best)]
    if len({plan.planned.batch_size for plan in plans}) > 1:
        lines.append(_largest(fitting, plans[0].planned.batch_size))
    return "\n".join([*lines, f"fastest: {_flags(best[0].planned)}"])


def _largest(fitting: Sequence[Plan], size: int) -> str:
    """A line for the largest batch of a search that started at `size`."""
    largest = max((plan.planned for plan in fitting), key=lambda planned: planned.batch_size)
    batch = largest.batch_size
    end = f", {plan_search.END} times the config's, where the search ends"
    is_end = 2 * batch > plan_search.END * size
    return f"largest batch that fits: {batch:,}{end if is_end else ''}: {_flags(largest)}"


def _time(plan: Plan) -> float:
    """Seconds per example, to compare plans; FLOPs per example for an unknown chip."""
    time_ = plan.seconds if plan.seconds is not None else plan.flops.executed
    return time_ / plan.planned.batch_size


def _beats(one: Plan, other: Plan) -> bool:
    ours, theirs = ((_time(plan), plan.memory.total) for plan in (one, other))
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def _flags(planned: Planned) -> str:
    flags = (f"--config.{name}={value}" for name, value in planned.flags.items())
    return " ".join(flags) or "the config as it is"


def _used(refusal: str) -> int:
    """Bytes of a program in the compiler's error "... (75.10G) exceeds ..."; 0 without a figure."""
    match = re.search(r"\(([\d.]+)([KMGT])\) exceeds", refusal)
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2])) if match else 0
