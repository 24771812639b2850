"""Heads and losses of PACL, SPARC and FLAIR on towers of transformers, for methods_reference.py."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH, EOS = 6, 59


def rope(x: torch.Tensor) -> torch.Tensor:
    """Features 2k, 2k + 1 of patch p turned by p / 10000^(2k / width); first those at 2k."""
    patches, width = x.shape[1:]
    angle = torch.outer(torch.arange(patches), 10_000.0 ** -(torch.arange(0, width, 2) / width))
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat([turned.real, turned.imag], dim=-1)


class Head(nn.Module):
    """The embedders of PACL and SPARC, by our names, without dropout."""

    def __init__(self, patch_width: int, text_width: int, width: int) -> None:
        super().__init__()
        linear = nn.Linear
        self.patch_embedder = nn.ModuleDict(
            {
                "norm": nn.LayerNorm(patch_width),
                "linear": linear(patch_width, width),
                "up": linear(patch_width, width),
                "down": linear(width, width),
            }
        )
        self.text_embedder = nn.ModuleDict(
            {"norm": nn.LayerNorm(text_width), "linear": linear(text_width, width)}
        )

    def patches(self, x: torch.Tensor) -> torch.Tensor:
        part = self.patch_embedder
        x = part["norm"](x)
        return part["linear"](x) + part["down"](F.gelu(part["up"](x)))

    def texts(self, x: torch.Tensor) -> torch.Tensor:
        return self.text_embedder["linear"](self.text_embedder["norm"](x))


def patches_of(model, head: Head, image: torch.Tensor, turns: bool) -> torch.Tensor:
    """Embedded patches: tokens after the last norm, without the class token and the projection."""
    vision = model.vision_model
    tokens = vision.post_layernorm(vision(pixel_values=image).last_hidden_state)[:, 1:]
    return head.patches(rope(tokens) if turns else tokens)


def both_ways(logits: torch.Tensor) -> torch.Tensor:
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def pooled(patches: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """The patches of one image (patches, width) pooled by one text of unit length."""
    weights = torch.sigmoid(10 * F.normalize(patches, dim=-1) @ text)
    return F.normalize((weights[:, None] * patches).sum(0), dim=0)


def pacl(model, head: Head, batch: dict, is_own: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Images pooled by their own caption, with rotary positions, or by each text without them."""
    patches, scale = patches_of(model, head, batch["image"], turns=is_own), model.logit_scale.exp()
    feature = model.text_projection(model.text_model(input_ids=batch["text"]).pooler_output)
    texts = F.normalize(head.texts(feature), dim=-1)
    pairs = torch.stack([torch.stack([pooled(i, t) @ t for t in texts]) for i in patches])
    if not is_own:
        return both_ways(scale * pairs), pairs
    images = torch.stack([pooled(i, t) for i, t in zip(patches, texts, strict=True)])
    return both_ways(scale * images @ texts.T), pairs


def grouped(patches: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Of each token of a text the patches of an image that are like it (equations 1 to 5)."""
    groups = []
    for token in tokens:
        like = patches @ token
        like = (like - like.min()) / (like.max() - like.min() + 1e-8)
        like = like * (like >= 1 / len(patches))
        groups.append(F.normalize(like / (like.sum() + 1e-8) @ patches, dim=0))
    return torch.stack(groups)


def sparc(model, head: Head, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Half the global loss, on means over all tokens, and the local loss over the real ones."""
    patches, scale = patches_of(model, head, batch["image"], turns=True), model.logit_scale.exp()
    tokens = head.texts(model.text_model(input_ids=batch["text"]).last_hidden_state)
    units = F.normalize(tokens, dim=-1)
    image = F.normalize(patches.mean(1), dim=-1)
    text = F.normalize(units.mean(1), dim=-1)
    costs = []
    for i, ids in enumerate(batch["text"]):
        real = int(ids.eq(EOS).int().argmax()) + 1
        logits = scale * grouped(patches[i], tokens[i])[:real] @ units[i, :real].T
        labels = torch.arange(real)
        costs += [F.cross_entropy(each, labels, reduction="none") for each in (logits, logits.T)]
    local = torch.cat(costs).mean()
    scores = [
        torch.stack([F.normalize(grouped(i, t).mean(0), dim=0) for t in tokens]) for i in patches
    ]
    scores = (torch.stack(scores) * text).sum(-1)
    return both_ways(scale * image @ text.T) / 2 + local, scores


def siglip_patches(model, vision) -> torch.Tensor:
    """Patches through the pooling head, each alone: value, output and MLP."""
    head = model.vision_model.head
    weight, bias = (
        x.chunk(3)[2] for x in (head.attention.in_proj_weight, head.attention.in_proj_bias)
    )
    patches = head.attention.out_proj(F.linear(vision.last_hidden_state, weight, bias))
    return patches + head.mlp(head.layernorm(patches))


def sigmoid_sum(
    model, scores: torch.Tensor, is_right: torch.Tensor, is_pair: torch.Tensor | bool = True
) -> torch.Tensor:
    """The sigmoid loss of the pairs, divided by the mean number of texts of an image."""
    logits = model.logit_scale.exp() * scores + model.logit_bias
    costs = -F.logsigmoid(torch.where(is_right, 1.0, -1.0) * logits)
    is_pair = torch.ones_like(is_right) & is_pair
    return costs[is_pair].sum() / (is_pair.sum() / BATCH)


class Attention(nn.Module):
    """FLAIR's: torch's, of texts to patches, with a token of zeros."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True, add_zero_attn=True)
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, patches: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Cosines of texts with the patches of one image that each attends to."""
        given = zip(self.norm, (texts, patches, patches), strict=True)
        pooled = self.attention(*(norm(x)[None] for norm, x in given))[0][0]
        return F.cosine_similarity(pooled, texts, dim=-1)


def flair(model, head: Attention, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Half the sigmoid loss of the attention's scores over all captions and the own positives, and
    half that of pooled features over all captions and positives."""
    vision = model.vision_model(pixel_values=batch["image"])
    image, patches = F.normalize(vision.pooler_output, dim=-1), siglip_patches(model, vision)

    def embed(ids: torch.Tensor) -> torch.Tensor:
        return model.text_model(input_ids=ids).pooler_output

    texts = torch.cat([embed(batch["text"]), embed(batch["positive_text"][batch["positive_mask"]])])
    owners = torch.cat([torch.arange(BATCH), batch["positive_mask"].nonzero()[:, 0]])
    is_own = torch.arange(BATCH)[:, None] == owners[None]
    is_caption = torch.arange(len(texts)) < BATCH
    attended = torch.stack([head(v, texts) for v in patches])
    value = sigmoid_sum(model, attended, is_own, is_own | is_caption[None])
    value = value + sigmoid_sum(model, image @ F.normalize(texts, dim=-1).T, is_own)
    return value / 2, attended[:, :BATCH]


def shared(values: list[torch.Tensor]) -> torch.Tensor:
    """The mean of several losses, with weights 1, 2, 3, ..."""
    shares = torch.arange(1, 1 + len(values)) / sum(range(1, 1 + len(values)))
    return (shares * torch.stack(values)).sum()


def c2lip(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Images with captions, and with all phrases, of which their own are right; a hundredth of that
    on the patches pooled for each phrase. Each sum is divided by the number of texts that an image
    has. Ours leaves phrases out that are another image's and equal one of the own; the released
    code does not."""
    vision = model.vision_model(pixel_values=batch["image"])
    image = F.normalize(vision.pooler_output, dim=-1)
    patches = F.normalize(siglip_patches(model, vision), dim=-1)

    def embed(ids: torch.Tensor) -> torch.Tensor:
        return F.normalize(model.text_model(input_ids=ids).pooler_output, dim=-1)

    text, phrases = embed(batch["text"]), embed(batch["positive_text"][batch["positive_mask"]])
    owners = batch["positive_mask"].nonzero()[:, 0]
    is_own = torch.arange(BATCH)[:, None] == owners[None]
    pooled = [
        torch.stack([F.normalize(torch.softmax(v @ t, 0) @ v, dim=0) @ t for t in phrases])
        for v in patches
    ]
    ids = batch["positive_text"][batch["positive_mask"]]
    is_equal = (ids[:, None] == ids[None]).all(-1)
    is_shared = (is_own[:, :, None] & is_equal[None]).any(1) & ~is_own
    assert is_shared.sum() == 2
    values = [
        sigmoid_sum(model, image @ phrases.T, is_own, is_pair)
        + 0.01 * sigmoid_sum(model, torch.stack(pooled), is_own, is_pair)
        for is_pair in (~is_shared, True)
    ]
    value = sigmoid_sum(model, image @ text.T, torch.eye(BATCH, dtype=torch.bool))
    return value + shared(values), image @ text.T
