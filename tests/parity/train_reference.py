"""Runs in an environment with torch: three steps of a tiny CLIP as open_clip trains it.

  python tests/parity/train_reference.py infonce|sigmoid OUT

OUT/before and OUT/after are the weights, OUT/batches.npz the images and texts of each step.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
from reference import TINY, shaken

from vlc_jax.tools.load_exported import without_torchvision

STEPS, TOTAL, WARMUP, RATE, BATCH = 3, 10, 2, 1e-3, 8


def of_open_clip(is_sigmoid: bool):
    without_torchvision()
    import open_clip
    from open_clip.loss import SigLipLoss

    start = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0} if is_sigmoid else {}
    loss = SigLipLoss() if is_sigmoid else open_clip.ClipLoss()
    model = open_clip.CLIP(16, TINY["vision"], TINY["text"], quick_gelu=True, **start)
    return model, lambda model, batch: loss(*model(batch["image"], batch["text"]))


def save(model, path: Path) -> None:
    path.mkdir()
    torch.save(model.state_dict(), path / "open_clip_pytorch_model.bin")


if __name__ == "__main__":
    loss_name, out = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(0)
    model, cost = of_open_clip(loss_name == "sigmoid")
    model = shaken(model)
    save(model, out / "before")
    rng = np.random.default_rng(0)
    images = rng.normal(size=(STEPS, BATCH, 24, 24, 3)).astype(np.float32)
    texts = rng.integers(3, 58, size=(STEPS, BATCH, 12)).astype(np.int32)
    texts[:, :, 9:] = 59
    batches = {"image": images, "text": texts}
    np.savez(out / "batches.npz", **batches)

    def is_exempt(name: str, parameter: torch.Tensor) -> bool:  # open_clip_train's rule
        words = ("bn", "ln", "bias", "logit_scale")
        return parameter.ndim < 2 or any(word in name for word in words)

    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if is_exempt(n, p)], "weight_decay": 0.0},
        {"params": [p for n, p in named if not is_exempt(n, p)], "weight_decay": 0.1},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98), eps=1e-6)
    for step in range(STEPS):
        if step < WARMUP:
            rate = RATE * (step + 1) / WARMUP
        else:
            done = (step - WARMUP) / (TOTAL - WARMUP)
            rate = 0.5 * (1 + math.cos(math.pi * done)) * RATE
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        batch = {key: torch.from_numpy(array[step]) for key, array in batches.items()}
        batch["image"] = batch["image"].permute(0, 3, 1, 2)
        batch = {key: x.long() if key.endswith("text") else x for key, x in batch.items()}
        value = cost(model, batch)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
    save(model, out / "after")
