"""Training steps per second, ours and open_clip's in torch, measured in one run.

  python speed/step.py --model B/32 --batch 16
  python speed/step.py --model B/32 --batch 16 --context 32
  python speed/step.py --model mini --batch 256 --no-torch --hard NegCLIP HP+HN
  python speed/step.py --model B/16 --batch 256 --attention xla

Each side is a separate process; a round times one step of each, and a matrix product for the peak.
Prints examples/s (median over rounds), the ratio to torch, or else to CLIP, and its range over
rounds, FLOPs relative to CLIP's, seconds of a large model's first state and of compilation, peak
memory, and MFU (of CLIP's FLOPs) against the peak of the same run.

Both libraries use JAX's platform. On a CPU both compute in float32. On a GPU ours uses the dtype of
config.model.dtype=auto and open_clip its --precision amp_bf16; the peak is the published bfloat16
rate, and memory counts arrays on the GPU.

--model is a variant of vlc_jax/models/variants.py, --attention our config.model.attention,
--context our context length (0: the variant's): captions of up to 32 tokens have equal embeddings
at 32 and 77 tokens, so users may shorten it; open_clip pads to 77. --hard adds our steps with hard
texts, --torch-compile a side with open_clip's model, loss and AdamW compiled; --gelu is the exact
GELU in place of QuickGELU on all sides. --torch-python is an interpreter with torch and open_clip,
such as .venv-parity/bin/python after `make parity`.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness

CLIP = "CLIP"
TEXTS = {  # step -> hard negatives, hard positives, losses
    CLIP: (0, 0, ("infonce",)),
    "NegCLIP": (1, 0, ("negclip",)),
    "SVLC": (1, 0, ("infonce", "svlc_negative")),
    "NegCLIP, 2 negatives": (2, 0, ("negclip",)),
    "HP+HN": (1, 1, ("infonce", "svlc_negative", "analogy")),
}


def main(
    model: str = "B/32",
    batch: int = 16,
    context: int = 0,
    attention: str = "auto",
    hard: tuple = (),
    gelu: bool = False,
    no_torch: bool = False,
    torch_compile: bool = False,
    torch_python: str = sys.executable,
    rounds: int = 10,
) -> None:
    case, peaks = {"model": model, "batch": batch, "context": context, "gelu": gelu}, []
    # without it JAX takes three quarters of the GPU's memory, and torch runs out of it
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    workers = {
        texts: harness.Worker(
            texts, sys.executable, "step.py", environment,
            side="jax", texts=texts, attention=attention, **case,
        )
        for texts in (CLIP, *hard)
    }  # fmt: skip
    for name in () if no_torch else ("torch", *["torch, compiled"] * torch_compile):
        case["is_compiled"] = name != "torch"
        workers[name] = harness.Worker(name, torch_python, "step.py", side="torch", **case)
    clip = workers[CLIP].facts  # after all have started: they compile at the same time
    print(
        f"{clip['device']}, {model}, batch {batch}, {clip['context']} text tokens, "
        f"{clip['dtype']}, attention: {clip['attention']}",
        flush=True,
    )
    if len(platforms := {worker.facts["platform"] for worker in workers.values()}) > 1:
        sys.exit(f"JAX and torch compute on different devices: {platforms}; set JAX_PLATFORMS")

    def step(worker: harness.Worker) -> dict[str, float]:
        if worker.name == CLIP:
            peaks.append(worker.ask("peak")["flops"])
        return {"examples/s": batch / worker.ask("step")["s"]}

    sides = {name: partial(step, worker) for name, worker in workers.items()}
    facts = {name: {} for name in workers}
    for name in (CLIP, *hard):
        of = workers[name].facts
        facts[name] = {"FLOPs / CLIP": of["flops"] / clip["flops"], **of["seconds"]}
    # workers take their first step before the first round
    reference = CLIP if no_torch else "torch"
    medians = harness.compare("training step", sides, rounds, reference, facts=facts, warm_up=0)
    for name, worker in workers.items():
        print(f"{name}: peak memory {worker.ask('memory')['gb']:.2f} GB")
    for name in [name for name in workers if name not in hard]:
        mfu = medians[name]["examples/s"] * clip["flops"] / batch / max(peaks)
        print(f"{name}: MFU {mfu:.2f} of {max(peaks) / 1e9:.0f} GFLOP/s")


def build(side: str, **case: object) -> tuple[dict, harness.Ask]:
    """Facts and answers of one side."""
    facts, step, peak, memory = {"jax": build_jax, "torch": build_torch}[side](**case)
    # the first step allocates memory
    step()

    def ask(question: str) -> dict:
        if question == "step":
            # after a wait the first step finds cold caches; training never waits
            step()
            return harness.timed(step)[1]
        return {"flops": peak()} if question == "peak" else {"gb": memory() / 1e9}

    return facts, ask


# facts; a function that runs one training step to its end; peak FLOP/s; peak memory in bytes
Built = tuple[dict, Callable[[], None], Callable[[], float], Callable[[], float]]


def build_jax(
    model: str, batch: int, context: int, gelu: bool, attention: str, texts: str
) -> Built:
    import jax
    from ml_collections import ConfigDict

    from speed import train_step
    from vlc_jax import models
    from vlc_jax.configs import default
    from vlc_jax.devices import runtime
    from vlc_jax.setup.model import with_attention

    # before the first use of a device, as vlc_jax.main does
    runtime.connect(None, None, None)
    platform, config = runtime.platform_name(), default.get_config()
    negatives, positives, losses = TEXTS[texts]
    with config.unlocked():
        config.batch_size = batch
        config.input.negatives.count, config.input.positives.count = negatives, positives
        config.losses = ConfigDict({loss: default.loss(weight=1.0) for loss in losses})
    options = {"context_length": context} if context else {}
    options |= {"activation": "gelu"} if gelu else {}
    net = models.build(variant=model, dtype=runtime.matrix_dtype(platform), **options)
    net = with_attention(net, attention, platform)
    step, compiled, seconds = train_step.build(config, net)
    facts = {
        "device": jax.devices()[0].device_kind,
        "platform": platform,
        "dtype": str(net.image.dtype),
        "attention": f"image {net.image.attention}, text {net.text.attention}",
        "flops": compiled.flops.model,
        "context": net.text.context_length,
        "seconds": seconds,
    }
    memory = harness.memory if runtime.is_cpu() else lambda: 1e9 * runtime.memory_gb()
    return facts, step, lambda: runtime.peak_flops()[0] * jax.device_count(), memory


def build_torch(model: str, batch: int, context: int, gelu: bool, is_compiled: bool) -> Built:
    """open_clip, on a GPU if there is one and JAX may use it."""
    from vlc_jax.tools.load_exported import without_torchvision

    # before open_clip, which imports torchvision if it can
    without_torchvision()
    import open_clip
    import torch

    torch.manual_seed(0)
    is_gpu = torch.cuda.is_available() and "cpu" not in os.environ.get("JAX_PLATFORMS", "")
    device = "cuda" if is_gpu else "cpu"
    if is_gpu:
        # as in open_clip's training; torch's default is slower
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
    name = f"ViT-{model.replace('/', '-')}"
    name += "" if gelu or model == "S/16" else "-quickgelu"  # S/16 is of GELU in both libraries
    net = open_clip.create_model(name, pretrained=None, device=device)
    loss = open_clip.ClipLoss()
    groups = [
        {"params": [p for p in net.parameters() if p.ndim < 2], "weight_decay": 0.0},
        {"params": [p for p in net.parameters() if p.ndim >= 2], "weight_decay": 0.1},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    size = int(np.ravel(net.visual.image_size)[0])
    image = torch.rand(batch, 3, size, size, device=device)
    length = context or net.context_length
    rng, eos = np.random.default_rng(0), net.vocab_size - 1
    text = harness.random_tokens(rng, (batch, length), net.vocab_size, eos)
    text = np.pad(text, ((0, 0), (0, net.context_length - length)))
    text = torch.from_numpy(text.astype(np.int64)).to(device)

    def forward() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=is_gpu):
            return loss(*net(image, text))

    compiled = torch.compile if is_compiled else lambda function: function
    value, update = compiled(forward), compiled(optimizer.step)

    def step() -> None:
        optimizer.zero_grad()
        value().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        update()
        with torch.no_grad():
            net.logit_scale.clamp_(0, 4.6052)
        if is_gpu:
            # kernels run asynchronously: without it only their launches would be timed
            torch.cuda.synchronize()

    memory = torch.cuda.max_memory_allocated if is_gpu else harness.memory
    return {"platform": "gpu" if is_gpu else "cpu"}, step, lambda: 0.0, memory


if __name__ == "__main__":
    harness.command(main, build, hard=TEXTS)
