"""Training losses of the heads in torch, as in their authors' code, for speed/heads.py."""

from collections.abc import Callable
from types import SimpleNamespace as Sizes  # of heads.build_jax

import torch
from torch import nn
from torch.nn import functional as F

Loss = Callable[[], torch.Tensor]


def make_step(head: str, sizes: Sizes) -> Callable[[], None]:
    """A function that computes loss and gradient of a head on random features."""
    torch.manual_seed(0)
    net, loss = {"dcsm": dcsm, "pacl": pacl}[head](sizes)

    def step() -> None:
        net.zero_grad()
        loss().backward()

    return step


class PatchConnector(nn.Module):
    """PACL's connector of patch tokens: a linear layer beside an MLP."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        width, embed = sizes.width, sizes.embed
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.linear = nn.Linear(width, embed)
        self.mlp = nn.Sequential(nn.Linear(width, embed), nn.GELU(), nn.Linear(embed, embed))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.norm(x))
        return self.linear(x) + self.mlp(x)


def infonce(logits: torch.Tensor) -> torch.Tensor:
    """Sum of the cross-entropies of both directions."""
    targets = torch.arange(len(logits))
    return F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)


def dcsm(sizes: Sizes) -> tuple[nn.Module, Loss]:
    """CNN over the maps of all pairs; a functional word in every caption."""
    batch, rows, columns = sizes.batch, sizes.patches + 1, sizes.length
    image = F.normalize(torch.randn(batch, rows, sizes.embed), dim=-1)
    text = F.normalize(torch.randn(batch, columns, sizes.embed), dim=-1)
    table = (F.normalize(torch.randn(11, rows), dim=-1) + 1) / 3
    convolutions = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)
    dense = nn.Linear(4 * rows * columns, 128), nn.ReLU(), nn.Linear(128, 1)
    net = nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), *dense)

    def loss() -> torch.Tensor:
        maps = torch.einsum("npd,mtd->nmpt", image, text)
        replaced = []
        # per caption, as in the authors' code
        for j in range(batch):
            k, column = 3 + j % 5, table[j % 11][None, :, None].expand(batch, rows, 1)
            replaced.append(torch.cat([maps[:, j, :, :k], column, maps[:, j, :, k + 1 :]], -1))
        maps = torch.stack(replaced, 1)
        maps = (maps - maps.mean()) / maps.std()
        return infonce(net(maps.reshape(-1, 1, rows, columns)).reshape(batch, batch))

    return net, loss


def pacl(sizes: Sizes) -> tuple[nn.Module, Loss]:
    """Patches weighted and pooled for every text."""
    norm, drop = nn.LayerNorm(sizes.embed), nn.Dropout(0.1)
    text_net = nn.Sequential(norm, drop, nn.Linear(sizes.embed, sizes.embed))
    net = nn.ModuleDict({"image": PatchConnector(sizes), "text": text_net})
    image = torch.randn(sizes.batch, sizes.patches, sizes.width)
    text = torch.randn(sizes.batch, sizes.embed)

    def loss() -> torch.Tensor:
        e, t = net["image"](image), F.normalize(net["text"](text), dim=-1)
        weights = torch.sigmoid(10 * torch.einsum("ipd,jd->ijp", F.normalize(e, dim=-1), t))
        v = F.normalize((weights[..., None] * e[:, None]).sum(2), dim=-1)
        return infonce(10 * (v * t[None]).sum(-1)) / 2

    return net, loss
