"""Runs in an environment with torch: three steps of a tiny CLIP as open_clip trains it.

  python tests/parity/train_reference.py infonce|sigmoid|negclip|svlc OUT

OUT/before and OUT/after are the weights, OUT/batches.npz the images and texts of each step. The
model and the losses infonce and sigmoid are open_clip's; for negclip and svlc the model is that of
transformers, the formulas are written down here.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from reference import TINY, shaken, tiny_hugging_face

from vlc_jax.tools.load_exported import without_torchvision

STEPS, TOTAL, WARMUP, RATE, BATCH = 3, 10, 2, 1e-3, 8


def embed_image(model, image: torch.Tensor) -> torch.Tensor:
    pooled = model.vision_model(pixel_values=image).pooler_output
    return F.normalize(model.visual_projection(pooled), dim=-1)


def embed_text(model, text: torch.Tensor) -> torch.Tensor:
    pooled = model.text_model(input_ids=text).pooler_output
    return F.normalize(model.text_projection(pooled), dim=-1)


def negclip(model, batch: dict) -> torch.Tensor:
    """Images against captions and the hard negatives of all; captions against images."""
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    scale = model.logit_scale.exp()
    wrong = embed_text(model, batch["negative_text"][batch["negative_mask"]])
    labels = torch.arange(len(image))
    rows = F.cross_entropy(scale * image @ torch.cat([text, wrong]).T, labels)
    return (rows + F.cross_entropy(scale * text @ image.T, labels)) / 2


def svlc(model, batch: dict) -> torch.Tensor:
    """CLIP + 1/2 negative loss + analogy loss, each over the examples that have such texts."""
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    scale = model.logit_scale.exp()
    labels = torch.arange(len(image))
    value = (
        F.cross_entropy(scale * image @ text.T, labels)
        + F.cross_entropy(scale * text @ image.T, labels)
    ) / 2
    costs = []
    for i, mask in enumerate(batch["negative_mask"]):
        if mask.any():
            wrong = embed_text(model, batch["negative_text"][i][mask])
            logits = scale * torch.cat([text[i : i + 1], wrong]) @ image[i]
            costs.append(F.cross_entropy(logits[None], torch.zeros(1, dtype=torch.long)))
    value = value + torch.stack(costs).mean() / 2
    has = batch["positive_mask"][:, 0]
    right = embed_text(model, batch["positive_text"][has, 0])
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


def of_open_clip(is_sigmoid: bool):
    without_torchvision()
    import open_clip
    from open_clip.loss import SigLipLoss

    start = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0} if is_sigmoid else {}
    loss = SigLipLoss() if is_sigmoid else open_clip.ClipLoss()
    model = open_clip.CLIP(16, TINY["vision"], TINY["text"], quick_gelu=True, **start)
    return model, lambda model, batch: loss(*model(batch["image"], batch["text"]))


def save(model, path: Path) -> None:
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(path)
    else:
        path.mkdir()
        torch.save(model.state_dict(), path / "open_clip_pytorch_model.bin")


FORMULAS = {"negclip": negclip, "svlc": svlc}

if __name__ == "__main__":
    loss_name, out = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(0)
    if loss_name in FORMULAS:
        model, cost = tiny_hugging_face("clip", "quick_gelu"), FORMULAS[loss_name]
    else:
        model, cost = of_open_clip(loss_name == "sigmoid")
    model = shaken(model)
    save(model, out / "before")
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
