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
import resource
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness

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
    parser = harness.parser(__doc__, rounds=10, has_workers=True)
    parser.add_argument("--model", default="B/32", help="a variant of vlc_jax/models/variants.py")
    parser.add_argument("--batch", type=int, default=16, help="pairs per step")
    parser.add_argument("--context", type=int, help="text tokens; default: the variant's")
    parser.add_argument("--attention", default="auto", help="config.model.attention of our side")
    parser.add_argument("--no-torch", action="store_true", help="only ours")
    args = parser.parse_args()
    if args.worker:
        harness.serve(serve, args)
        return
    case = ("--model", args.model, "--batch", args.batch, "--attention", args.attention)
    case += ("--context", args.context) if args.context else ()
    # without it JAX takes three quarters of the GPU's memory, and torch runs out of it
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    worker = ("step.py", *case, "--worker")
    ours = harness.Worker("jax", sys.executable, *worker, "jax", **environment)
    describe(args, ours.facts)
    sides = {"peak": lambda: ours.ask("peak")["flops"], "ours": lambda: ours.ask("step")["s"]}
    theirs = None
    if not args.no_torch:
        platform = ours.facts["platform"]
        theirs = harness.Worker("torch", args.torch_python, *worker, "torch", platform)
        sides["torch"] = lambda: theirs.ask("step")["s"]
    # workers take their first step before the first round
    measured = harness.interleave(sides, args.rounds, warm_up=0)
    report(args, ours.facts | ours.ask("memory"), measured["peak"], measured["ours"])
    if theirs:
        rate = args.batch / statistics.median(measured["torch"])
        memory = theirs.ask("memory")["memory_gb"]
        print(f"{theirs.facts['name']}: {rate:.2f} examples/s, peak memory {memory:.2f} GB")
        ratio = harness.ratio(measured["torch"], measured["ours"])
        print(f"ours / torch, round by round: {ratio}")
        theirs.close()
    ours.close()


def describe(args: argparse.Namespace, facts: dict) -> None:
    """Prints the case once our side is compiled, which on a GPU may take longer than all rounds."""
    harness.print_machine()
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


def serve(args: argparse.Namespace) -> tuple[dict, harness.Ask]:
    """Facts and answers of one side."""
    name, *platform = args.worker
    side = build_jax(args) if name == "jax" else build_torch(args, *platform)
    # the first step allocates memory
    side.step()

    def ask(question: str) -> dict:
        if question == "step":
            # after a wait the first step finds cold caches; training never waits
            side.step()
            return harness.timed(side.step)[1]
        return {"flops": side.peak()} if question == "peak" else {"memory_gb": side.memory()}

    return side.facts, ask


def resident_gb() -> float:
    """Peak resident set of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def build_jax(args: argparse.Namespace) -> Side:
    import jax

    from speed import train_step
    from vlc_jax import models
    from vlc_jax.configs import default
    from vlc_jax.devices import runtime
    from vlc_jax.setup.model import with_attention

    # before the first use of a device, as vlc_jax.main does
    runtime.connect(None, None, None)
    platform, config = runtime.platform_name(), default.get_config()
    config.batch_size = args.batch
    options = {"context_length": args.context} if args.context else {}
    model = models.build(variant=args.model, dtype=runtime.matrix_dtype(platform), **options)
    model = with_attention(model, args.attention, platform)
    step = train_step.build(config, model)
    facts = {
        "name": f"vlc_jax, jax {jax.__version__}, {jax.devices()[0].device_kind}",
        "platform": platform,
        "dtype": str(model.image.dtype),
        "attention": f"image {model.image.attention}, text {model.text.attention}",
        "train_flops": step.compiled.flops.model / args.batch,
        "context": model.text.context_length,
        "compile_s": step.compile_seconds,
    }
    memory = resident_gb if runtime.is_cpu() else runtime.memory_gb
    return Side(facts, step.run, lambda: runtime.peak_flops()[0] * jax.device_count(), memory)


def build_torch(args: argparse.Namespace, platform: str) -> Side:
    """open_clip on JAX's platform."""
    from vlc_jax.tools.load_exported import without_torchvision

    # before open_clip, which imports torchvision if it can
    without_torchvision()
    import open_clip
    import torch

    torch.manual_seed(0)
    is_gpu = platform == "gpu"
    device = "cuda" if is_gpu else "cpu"
    if is_gpu:
        # as in open_clip's training; torch's default is slower
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
    shape, eos = (args.batch, length), model.vocab_size - 1
    text = harness.random_tokens(np.random.default_rng(0), shape, model.vocab_size, eos)
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
            # kernels run asynchronously: without it only their launches would be timed
            torch.cuda.synchronize()

    name = f"open_clip {importlib.metadata.version('open_clip_torch')}, torch {torch.__version__}"
    name += ", bfloat16 autocast" if is_gpu else ""
    memory = (lambda: torch.cuda.max_memory_allocated() / 1e9) if is_gpu else resident_gb
    return Side({"name": name}, step, lambda: 0.0, memory)


if __name__ == "__main__":
    main()
