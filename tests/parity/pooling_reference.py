"""Runs in an environment with torch: scores of pooled patches, pair by pair and query by query.

  python tests/parity/pooling_reference.py OUT

OUT/io.npz: patches, tokens, pooled texts and masks; of each rule the scores of all pairs, and the
gradients of a weighted sum by patches, queries and the logit scale. Written down from the papers
and from what the authors' code computes.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

IMAGES, TEXTS, PATCHES, LENGTH, WIDTH, SCALE = 4, 8, 7, 6, 8, 12.0


def unit(x: torch.Tensor) -> torch.Tensor:
    return F.normalize(x, dim=-1)


def softmax(patches: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """C2LIP: unit patches weighed by the softmax of their products with the unit text."""
    patches, text = unit(patches), unit(text)
    return unit(torch.softmax(patches @ text, 0) @ patches) @ text


def sigmoid(patches: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """PACL: patches weighed by the sigmoid of ten times their cosines with the text."""
    return unit(torch.sigmoid(10 * unit(patches) @ unit(text)) @ patches) @ unit(text)


def scaled(like: torch.Tensor) -> torch.Tensor:
    return (like - like.min()) / (like.max() - like.min())


def focused(patches: torch.Tensor, tokens: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """FSC-CLIP: patches weighed by min-max of raw products, without gradient; logsumexp of logits,
    here divided by the scale that multiplies scores."""
    logits = []
    for token in tokens:
        weights = scaled((patches @ token).detach())
        logits.append(scale * unit(weights / weights.sum() @ patches) @ unit(token))
    return torch.logsumexp(torch.stack(logits), 0) / scale


def sparse(patches: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """SPARC's groups: min-max, below 1 / patches 0, divided by the sum; the mean over tokens."""
    cosines = []
    for token in tokens:
        weights = scaled(patches @ token)
        weights = weights * (weights >= 1 / len(patches))
        cosines.append(unit(weights / weights.sum() @ patches) @ unit(token))
    return torch.stack(cosines).mean()


def best(patches: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """FILIP, text to image: the mean over tokens of the largest cosine of a patch."""
    return torch.stack([(unit(patches) @ unit(token)).max() for token in tokens]).mean()


def attention(leaves: dict[str, torch.Tensor], weights: torch.Tensor) -> dict[str, np.ndarray]:
    """FLAIR: torch's attention of each text to the patches of an image, with a zero token."""
    attend = torch.nn.MultiheadAttention(WIDTH, 2, batch_first=True, add_zero_attn=True)
    norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(3))
    both = torch.nn.ModuleDict({"attention": attend, "norm": norms}).double()
    with torch.no_grad():
        for x in both.parameters():
            x.add_(0.3 * torch.randn_like(x))
    patches, _, texts, _ = leaves.values()
    scores = []
    for v in patches:
        query, key, value = (n(x)[None] for n, x in zip(norms, (texts, v, v), strict=True))
        scores.append((unit(attend(query, key, value)[0][0]) * unit(texts)).sum(-1))
    named = dict(both.named_parameters()) | {"patches": patches, "texts": texts}
    total = (weights * torch.stack(scores)).sum()
    slopes = torch.autograd.grad(total, list(named.values()))
    found = {f"flair/{key}": x.numpy() for key, x in zip(named, slopes, strict=True)}
    found |= {f"parameter/{key}": x.detach().numpy() for key, x in both.named_parameters()}
    return found | {"flair": torch.stack(scores).detach().numpy()}


def main(out: Path) -> None:
    torch.manual_seed(0)
    arrays = {
        "patches": 1.5 * torch.randn(IMAGES, PATCHES, WIDTH, dtype=torch.float64),
        "tokens": 1.5 * torch.randn(TEXTS, LENGTH, WIDTH, dtype=torch.float64),
        "texts": 1.5 * torch.randn(TEXTS, WIDTH, dtype=torch.float64),
        "scale": torch.tensor(SCALE, dtype=torch.float64),
    }
    leaves = {key: x.requires_grad_() for key, x in arrays.items()}
    patches, tokens, texts, scale = leaves.values()
    counts = [6, 2, 1, 4, 3, 6, 5, 2]
    weights = torch.cos(torch.arange(IMAGES * TEXTS, dtype=torch.float64)).reshape(IMAGES, TEXTS)
    found = {key: x.detach().numpy() for key, x in leaves.items()}
    found |= {"counts": np.array(counts), "weights": weights.numpy()}
    found |= attention(leaves, weights)
    rules = {
        "c2lip": lambda i, j: softmax(patches[i], texts[j]),
        "pacl": lambda i, j: sigmoid(patches[i], texts[j]),
        "fsc": lambda i, j: focused(patches[i], tokens[j, : counts[j]], scale),
        "sparc": lambda i, j: sparse(patches[i], tokens[j, : counts[j]]),
        "maxsim": lambda i, j: best(patches[i], tokens[j, : counts[j]]),
    }
    for name, rule in rules.items():
        scores = torch.stack(
            [torch.stack([rule(i, j) for j in range(TEXTS)]) for i in range(IMAGES)]
        )
        slopes = torch.autograd.grad(
            (weights * scores).sum(), list(leaves.values()), None, True, allow_unused=True
        )
        found[name] = scores.detach().numpy()
        for key, slope in zip(leaves, slopes, strict=True):
            if slope is not None:
                found[f"{name}/{key}"] = slope.numpy()
    np.savez(out / "io.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
