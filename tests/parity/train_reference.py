"""Runs in an environment with torch: three steps of a tiny CLIP as open_clip trains it.

  python tests/parity/train_reference.py infonce|sigmoid|negclip|svlc OUT

OUT/before.pt and after.pt are the weights, OUT/batches.npz the images and texts of each step. The
losses infonce and sigmoid are open_clip's; negclip and svlc are its CLIP loss with what their
papers add, written down here.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from reference import TINY, shaken, without_torchvision

STEPS, TOTAL, WARMUP, RATE, BATCH = 3, 10, 2, 1e-3, 8


def negclip(model, batch: dict) -> torch.Tensor:
    """Images against captions and the hard negatives of all; captions against images."""
    image, text, scale = model(batch["image"], batch["text"])
    wrong = model.encode_text(batch["negative_text"][batch["negative_mask"]], normalize=True)
    labels = torch.arange(len(image))
    rows = F.cross_entropy(scale * image @ torch.cat([text, wrong]).T, labels)
    return (rows + F.cross_entropy(scale * text @ image.T, labels)) / 2


def svlc(model, batch: dict) -> torch.Tensor:
    """CLIP + 1/2 negative loss + analogy loss, each over the examples that have such texts."""
    image, text, scale = model(batch["image"], batch["text"])
    labels = torch.arange(len(image))
    value = (
        F.cross_entropy(scale * image @ text.T, labels)
        + F.cross_entropy(scale * text @ image.T, labels)
    ) / 2
    costs = []
    for i, mask in enumerate(batch["negative_mask"]):
        if mask.any():
            wrong = model.encode_text(batch["negative_text"][i][mask], normalize=True)
            logits = scale * torch.cat([text[i : i + 1], wrong]) @ image[i]
            costs.append(F.cross_entropy(logits[None], torch.zeros(1, dtype=torch.long)))
    value = value + torch.stack(costs).mean() / 2
    has = batch["positive_mask"][:, 0]
    right = model.encode_text(batch["positive_text"][has, 0], normalize=True)
    labels = torch.arange(len(right))
    analogies = [F.cross_entropy(scale * x[has] @ right.T, labels) for x in (image, text)]
    return value + sum(analogies) / 2


def hard_texts(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts of every step and example, and which of them are there; every third is missing."""
    texts = rng.integers(3, 58, size=(STEPS, BATCH, count, 12)).astype(np.int32)
    texts[..., 8:] = 59
    mask = np.arange(STEPS * BATCH * count).reshape(STEPS, BATCH, count) % 3 > 0
    mask[:, 5] = False
    return texts, mask


FORMULAS = {"negclip": negclip, "svlc": svlc}

if __name__ == "__main__":
    without_torchvision()
    import open_clip
    from open_clip.loss import SigLipLoss

    loss_name, out = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(0)
    is_sigmoid = loss_name == "sigmoid"
    start = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0} if is_sigmoid else {}
    model = open_clip.CLIP(16, TINY["vision"], TINY["text"], quick_gelu=True, **start)
    model = shaken(model)
    torch.save(model.state_dict(), out / "before.pt")
    rng = np.random.default_rng(0)
    images = rng.normal(size=(STEPS, BATCH, 24, 24, 3)).astype(np.float32)
    texts = rng.integers(3, 58, size=(STEPS, BATCH, 12)).astype(np.int32)
    texts[:, :, 9:] = 59
    batches = {"image": images, "text": texts}
    if loss_name in FORMULAS:
        for kind, count in (("negative", 2), ("positive", 1)):
            batches[f"{kind}_text"], batches[f"{kind}_mask"] = hard_texts(rng, count)
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
    loss = SigLipLoss() if is_sigmoid else open_clip.ClipLoss()
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
        if loss_name in FORMULAS:
            batch = {key: x.long() if "text" in key else x for key, x in batch.items()}
            value = FORMULAS[loss_name](model, batch)
        else:
            value = loss(*model(batch["image"], batch["text"].long()))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
    torch.save(model.state_dict(), out / "after.pt")
