"""Training steps per second, ours and open_clip's in torch, measured in one run.

  python speed/step.py --model B/32 --batch 16
  python speed/step.py --model B/32 --batch 16 --context 32
  python speed/step.py --model mini --batch 256 --no-torch
  python speed/step.py --model B/16 --batch 256 --attention xla

Each side is a separate process; a round times one step of each, and a matrix product for the peak.
Prints examples/s (median over rounds), the ratio and its range over rounds, MFU against the peak of
the same run, compile time and peak memory.

Both sides use JAX's platform. On a CPU both compute in float32. On a GPU ours uses the dtype of
config.model.dtype=auto and open_clip its --precision amp_bf16; the peak is the published bfloat16
rate, and memory counts arrays on the GPU.

--context is our context length: captions of up to 32 tokens have equal embeddings at 32 and 77
tokens, so users may shorten it; open_clip pads to 77. --torch-python is an interpreter with torch
and open_clip, such as .venv-parity/bin/python after `make parity`.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from speed.worker import Worker  # noqa: E402

OPEN_CLIP = {
    "S/16": "ViT-S-16",
    "B/32": "ViT-B-32-quickgelu",
    "B/16": "ViT-B-16-quickgelu",
    "L/14": "ViT-L-14-quickgelu",
    "L/14-336": "ViT-L-14-336-quickgelu",
}


class Side(NamedTuple):
    """step: runs one training step to its end.   peak: FLOP/s.   memory: peak in GB."""

    facts: dict
    step: Callable[[], None]
    peak: Callable[[], float]
    memory: Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="B/32", help="a variant of vlc_jax/models/variants.py")
    parser.add_argument("--batch", type=int, default=16, help="pairs per step")
    parser.add_argument(
        "--context", type=int, default=None, help="text tokens; default: the variant's"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--attention", default="auto", help="config.model.attention of our side")
    parser.add_argument("--no-torch", action="store_true", help="only ours")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--worker", choices=sorted(WORKERS), help=argparse.SUPPRESS)
    parser.add_argument("--platform", help=argparse.SUPPRESS)  # torch's platform: JAX's
    args = parser.parse_args()
    if args.worker:
        work(WORKERS[args.worker], args)
        return
    # without it JAX takes three quarters of the GPU's memory, and torch runs out of it
    ours = Worker(
        "jax", command(sys.executable, "jax", args), XLA_PYTHON_CLIENT_PREALLOCATE="false"
    )
    args.platform = ours.facts["platform"]
    describe(args, ours.facts)
    theirs = None
    if not args.no_torch:
        theirs = Worker("torch", command(args.torch_python, "torch", args))
    peaks, our_seconds, their_seconds = [], [], []
    for _ in range(args.rounds):
        peaks.append(ours.ask("peak")["flops"])
        our_seconds.append(ours.ask("step")["seconds"])
        if theirs:
            their_seconds.append(theirs.ask("step")["seconds"])
    report(args, ours.facts | ours.ask("memory"), peaks, our_seconds)
    if theirs:
        facts = theirs.facts | theirs.ask("memory")
        ratios = [b / a for a, b in zip(our_seconds, their_seconds, strict=True)]
        rate = args.batch / statistics.median(their_seconds)
        print(f"{facts['name']}: {rate:.2f} examples/s, peak memory {facts['memory_gb']:.2f} GB")
        print(
            f"ours / torch, round by round: {statistics.median(ratios):.2f} x "
            f"(min {min(ratios):.2f}, max {max(ratios):.2f})"
        )
        theirs.close()
    ours.close()


def command(python: str, name: str, args: argparse.Namespace) -> list[str]:
    """Command line of the worker `name`."""
    options = ["--context", str(args.context)] if args.context else []
    options += ["--platform", args.platform] if args.platform else []
    case = ["--worker", name, "--model", args.model, "--batch", str(args.batch)]
    return [python, __file__, *case, "--attention", args.attention, *options]


def describe(args: argparse.Namespace, facts: dict) -> None:
    """Prints the case once our side is compiled, which on a GPU may take longer than all rounds."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(
        f"{facts['name']}, {args.model}, batch {args.batch}, {facts['context']} text tokens, "
        f"{facts['dtype']}, attention: {facts['attention']}",
        flush=True,
    )


def report(args: argparse.Namespace, facts: dict, peaks: list[float], seconds: list[float]) -> None:
    rate, peak = args.batch / statistics.median(seconds), max(peaks)
    print(
        f"ours: {rate:.2f} examples/s (steps of {statistics.median(seconds) * 1e3:.0f} ms), "
        f"MFU {rate * facts['train_flops'] / peak:.2f} of {peak / 1e9:.0f} GFLOP/s, "
        f"compile {facts['compile_s']:.1f} s, peak memory {facts['memory_gb']:.2f} GB"
    )


def work(build: Callable[[argparse.Namespace], Side], args: argparse.Namespace) -> None:
    """Answers each line of stdin with a line of JSON; output of libraries goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    facts, step, peak, memory = build(args)
    step()  # the first step allocates memory
    print(json.dumps(facts), file=answers, flush=True)
    for question in sys.stdin:
        start = time.perf_counter()
        if question.strip() == "step":
            step()  # after a wait the first step finds cold caches; training never waits
            start = time.perf_counter()
            step()
            answer = {"seconds": time.perf_counter() - start}
        elif question.strip() == "peak":
            answer = {"flops": peak()}
        else:
            answer = {"memory_gb": memory()}
        print(json.dumps(answer), file=answers, flush=True)


def resident_gb() -> float:
    """Peak resident set of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def build_jax(args: argparse.Namespace) -> Side:
    import jax
    import numpy as np

    from vlc_jax import models, setup
    from vlc_jax.configs import default
    from vlc_jax.devices import runtime, sharding
    from vlc_jax.setup.model import with_attention
    from vlc_jax.setup.state import init_state
    from vlc_jax.train import step as train_step

    runtime.connect(None, None, None)  # as vlc_jax.main does
    platform, batch_size = runtime.platform_name(), args.batch
    config = default.get_config()
    config.batch_size = batch_size
    options = {"context_length": args.context} if args.context else {}
    model = models.build(variant=args.model, dtype=runtime.matrix_dtype(platform), **options)
    model = with_attention(model, args.attention, platform)
    size, length = model.image.image_size, model.text.context_length
    config.input.image_size, config.text.context_length = size, length
    run = setup.of_model(config, model, config.steps)
    state = jax.jit(partial(init_state, run))({})
    rng = np.random.default_rng(0)
    text = captions(batch_size, length, model.text.vocab_size, model.text.eos_id)
    batch = {
        "image": rng.integers(0, 256, (batch_size, size, size, 3), dtype=np.uint8),
        "text": text.astype(np.int32),
        "mask": np.ones(batch_size, bool),
        "stop": np.zeros(batch_size, bool),
    }
    batch = sharding.put_batch(run.mesh, batch)
    start = time.perf_counter()
    compiled = train_step.compile_step(run, state, {}, batch)
    seconds = time.perf_counter() - start

    def step() -> None:
        nonlocal state
        state, metrics = compiled(state, {}, batch)
        jax.block_until_ready((state, metrics))

    facts = {
        "name": f"vlc_jax, jax {jax.__version__}, {jax.devices()[0].device_kind}",
        "platform": platform,
        "dtype": str(model.image.dtype),
        "attention": f"image {model.image.attention}, text {model.text.attention}",
        "train_flops": compiled.flops.model / batch_size,
        "context": length,
        "compile_s": seconds,
    }
    memory = resident_gb if runtime.is_cpu() else runtime.memory_gb
    return Side(facts, step, lambda: runtime.peak_flops()[0] * jax.device_count(), memory)


def build_torch(args: argparse.Namespace) -> Side:
    from vlc_jax.tools.load_exported import without_torchvision

    without_torchvision()
    import numpy as np
    import open_clip
    import torch

    torch.manual_seed(0)
    is_gpu = args.platform == "gpu"
    device = "cuda" if is_gpu else "cpu"
    if is_gpu:  # as in open_clip's training
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
    model = open_clip.create_model(OPEN_CLIP[args.model], pretrained=None, device=device)
    loss = open_clip.ClipLoss()
    parameters = list(model.named_parameters())
    groups = [
        {"params": [p for _, p in parameters if p.ndim < 2], "weight_decay": 0.0},
        {"params": [p for _, p in parameters if p.ndim >= 2], "weight_decay": 0.1},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    size = model.visual.image_size
    size = size if isinstance(size, int) else size[0]
    image = torch.rand(args.batch, 3, size, size, device=device)
    length = args.context or model.context_length
    text = captions(args.batch, length, model.vocab_size, model.vocab_size - 1)
    text = np.pad(text, ((0, 0), (0, model.context_length - length)))
    text = torch.from_numpy(text.astype(np.int64)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=is_gpu):
            value = loss(*model(image, text))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6052)
        if is_gpu:
            torch.cuda.synchronize()

    name = f"open_clip {importlib.metadata.version('open_clip_torch')}, torch {torch.__version__}"
    name += ", bfloat16 autocast" if is_gpu else ""
    memory = (lambda: torch.cuda.max_memory_allocated() / 1e9) if is_gpu else resident_gb
    return Side({"name": name}, step, lambda: 0.0, memory)


def captions(count: int, length: int, vocabulary: int, eos: int):
    """Random token ids that fill the context, with EOS last."""
    import numpy as np

    text = np.random.default_rng(0).integers(3, vocabulary - 2, (count, length))
    text[:, -1] = eos
    return text


WORKERS = {"jax": build_jax, "torch": build_torch}

if __name__ == "__main__":
    main()
