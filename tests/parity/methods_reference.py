"""Runs in an environment with torch: the loss of a method, and its gradient, on tiny towers.

  python tests/parity/methods_reference.py CASE OUT

OUT/before are towers as transformers saves them, OUT/gradient the gradients of the loss by the same
names, OUT/io.npz the batch, the loss, the scores of evaluation, and of a head its parameters and
their gradients. The towers are those of transformers; heads and losses are written down here, from
the papers and from what the authors' code computes.
"""

import copy
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from heads_reference import (
    BATCH,
    EOS,
    Attention,
    Head,
    both_ways,
    c2lip,
    flair,
    pacl,
    shared,
    sparc,
)
from reference import shaken, tiny_hugging_face

LENGTH, PIXELS, BAG = 12, 24, 3
SCALE = 10.0  # of PACL and SPARC, fixed; SigLIP's first, with a bias of -10


def embed_image(model, image: torch.Tensor) -> torch.Tensor:
    pooled = model.vision_model(pixel_values=image).pooler_output
    return F.normalize(model.visual_projection(pooled), dim=-1)


def embed_text(model, text: torch.Tensor) -> torch.Tensor:
    pooled = model.text_model(input_ids=text).pooler_output
    return F.normalize(model.text_projection(pooled), dim=-1)


def embed_texts(model, texts: torch.Tensor) -> list[torch.Tensor]:
    """Of hard texts (batch, n, length) the embeddings of each of the n."""
    return [embed_text(model, texts[:, k]) for k in range(texts.shape[1])]


def negclip(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Images against captions and the hard negatives of all; captions against images."""
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    scale = model.logit_scale.exp()
    wrong = embed_text(model, batch["negative_text"][batch["negative_mask"]])
    labels = torch.arange(len(image))
    rows = F.cross_entropy(scale * image @ torch.cat([text, wrong]).T, labels)
    return (rows + F.cross_entropy(scale * text @ image.T, labels)) / 2, image @ text.T


def tripletclip(model, batch: dict) -> torch.Tensor:
    """NegCLIP's loss of the images, the even rows, and of the images of their negatives."""
    parts = [negclip(model, {key: x[place::2] for key, x in batch.items()}) for place in (0, 1)]
    return parts[0][0] + parts[1][0]


def conclip(model, batch: dict) -> torch.Tensor:
    """Images against captions and negatives, captions against images and distractors, the odd rows,
    and distractors against their captions and negatives: the mean of three cross-entropies."""
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    scale, labels = model.logit_scale.exp(), torch.arange(BATCH // 2)
    images = torch.cat([image[::2], image[1::2]])
    costs = [F.cross_entropy(scale * text[::2] @ images.T, labels)]
    for place in (0, 1):
        has = batch["negative_mask"][place::2]
        wrong = embed_text(model, batch["negative_text"][place::2][has])
        logits = scale * image[place::2] @ torch.cat([text[place::2], wrong]).T
        costs.append(F.cross_entropy(logits, labels))
    return sum(costs) / 3


def csclip(model, batch: dict) -> torch.Tensor:
    """NegCLIP's loss with the first negatives, and half the loss of the units with their foils:
    at each place images against the units and their own foil, and units against images."""
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    scale, wrong = model.logit_scale.exp(), batch["negative_mask"][:, 0]
    foil = embed_text(model, batch["negative_text"][:, 0][wrong])
    labels = torch.arange(BATCH)
    rows = F.cross_entropy(scale * image @ torch.cat([text, foil]).T, labels)
    value, costs = (rows + F.cross_entropy(scale * text @ image.T, labels)) / 2, [[]] * BATCH
    for k in range(BAG):
        has = batch["positive_mask"][:, k] & batch["negative_mask"][:, 1 + k]
        unit = embed_text(model, batch["positive_text"][:, k][has])
        foil = embed_text(model, batch["negative_text"][:, 1 + k][has])
        own = (image[has] * foil).sum(1, keepdim=True)
        labels = torch.arange(len(unit))
        logits = scale * torch.cat([image[has] @ unit.T, own], dim=1), scale * unit @ image[has].T
        both = sum(F.cross_entropy(x, labels, reduction="none") for x in logits) / 2
        for i, cost in zip(has.nonzero()[:, 0].tolist(), both, strict=True):
            costs[i] = [*costs[i], cost]
    means = [torch.stack(of_image).mean() for of_image in costs if of_image]
    assert len(means) < BATCH  # some are missing
    return value + torch.stack(means).mean() / 2


def clic(model, batch: dict) -> torch.Tensor:
    """Of pairs, the even rows: the mean of CLIP's loss and of a choice between two over the texts
    of an image, half each, and the distance of two of them; of single images CLIP's loss. Texts at
    the same place are of one contrast, and a missing one is in none."""
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    scale, x = model.logit_scale.exp(), image[::2]
    texts = torch.stack([text, *embed_texts(model, batch["positive_text"])], dim=1)[::2]
    has = F.pad(batch["positive_mask"], (1, 0), value=True)[::2]
    wrong = torch.stack(embed_texts(model, batch["negative_text"]), dim=1)[::2]
    has_wrong = batch["negative_mask"][::2]
    contrast, choice = torch.zeros(has.shape), torch.zeros(has.shape)
    for k in range(has.shape[1]):
        logits = scale * x @ texts[has[:, k], k].T  # of all images with the texts that are there
        labels = torch.arange(logits.shape[1])
        rows = F.cross_entropy(logits[has[:, k]], labels, reduction="none")
        columns = F.cross_entropy(logits.T, has[:, k].nonzero()[:, 0], reduction="none")
        contrast[has[:, k], k] = (rows + columns) / 2
    for i, k in has.nonzero().tolist():
        options = torch.cat([texts[i, k : k + 1], wrong[i][has_wrong[i]]])
        choice[i, k] = F.cross_entropy(scale * (options @ x[i])[None], torch.tensor([0]))
    apart = (texts[:, 0] - texts[:, 1]).square().sum(1)
    some = has[:, 1:].any(1)
    contrast, choice = (each.sum(1) / has.sum(1) for each in (contrast, choice))
    value = contrast.mean() / 2 + choice[some & has_wrong.any(1)].mean() / 2
    value = value + torch.where(has[:, 1], apart, 0)[some].mean()
    return value + both_ways(scale * image[1::2] @ text[1::2].T)


def calibrated(logits: torch.Tensor, missing: int = 0) -> torch.Tensor:
    """FSC-CLIP's focal loss of class 0, gamma 2, with labels smoothed by .02. In the released code
    so many missing negatives are logits of 0, without a label."""
    label = torch.full_like(logits, 0.02 / len(logits))
    label[0] += 0.98
    log_p = F.log_softmax(torch.cat([logits, torch.zeros(missing)]), 0)[: len(logits)]
    return -(label * (1 - log_p.exp()) ** 2 * log_p).sum()


def token_cosines(patches: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The cosine of each token with the patches that are like it, pooled."""
    cosines = []
    for token in tokens:
        like = (patches @ token).detach()
        like = (like - like.min()) / (like.max() - like.min())
        pooled = F.normalize(like / like.sum() @ patches, dim=0)
        cosines.append(pooled @ F.normalize(token, dim=0))
    return torch.stack(cosines)


def fsc_clip(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """CLIP, half the calibrated loss, and a fifth of it on patches against tokens, without missing
    negatives, and with them as in the released code.

    Tokens are those after the start token, the end token included.
    """
    vision, scale = model.vision_model, model.logit_scale.exp()
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    raw = vision.post_layernorm(vision(pixel_values=batch["image"]).last_hidden_state)
    patches = model.visual_projection(raw)[:, 1:]

    def tokens(ids: torch.Tensor) -> torch.Tensor:
        every = model.text_projection(model.text_model(input_ids=ids[None]).last_hidden_state)[0]
        return every[1 : int(ids.eq(EOS).int().argmax()) + 1]

    whole, local = [], []  # (without, with missing negatives) of an image
    for i, mask in enumerate(batch["negative_mask"]):
        if not mask.any():
            continue
        wrong = batch["negative_text"][i][mask]
        texts = torch.cat([text[i : i + 1], embed_text(model, wrong)])
        own = [token_cosines(patches[i], tokens(ids)) for ids in (batch["text"][i], *wrong)]
        of_patches = torch.stack([(scale * x).logsumexp(0) for x in own])
        for costs, logits in ((whole, scale * texts @ image[i]), (local, of_patches)):
            each = [calibrated(logits, missing) for missing in (0, int((~mask).sum()))]
            costs.append(torch.stack(each))
    costs = torch.stack(whole).mean(0) / 2 + torch.stack(local).mean(0) / 5
    return both_ways(scale * image @ text.T) + shared([*costs]), image @ text.T


def hp_hn(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """CLIP, half the negative loss and the analogy loss, over the examples with such texts."""
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
    return value + sum(analogies) / 2, image @ text.T


def dac(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """CLIP, the caption's negative, MIL-NCE on the bags, and each bag against its negatives.

    The first negative is the caption's, the others are those of the sentences of the bag. A missing
    sentence or negative is left out.
    """
    image, text = embed_image(model, batch["image"]), embed_text(model, batch["text"])
    scale = model.logit_scale.exp()
    has = batch["positive_mask"], batch["negative_mask"]
    bags, wrong = (
        [embed_text(model, texts)[here] for texts, here in zip(batch[key], mask, strict=True)]
        for key, mask in zip(("positive_text", "negative_text"), has, strict=True)
    )
    of_caption, of_bag, mil, against = [], [], [], []
    for i in range(BATCH):
        count = int(has[1][i, 0])
        if count:
            logits = scale * torch.stack([text[i] @ image[i], wrong[i][0] @ image[i]])
            of_caption.append(-F.log_softmax(logits, 0)[0])
        of_bag.append(scale * wrong[i][count:] @ image[i])
        if not len(bags[i]):
            continue
        own = scale * bags[i] @ image[i]
        rows = torch.cat([scale * bag @ image[i] for bag in bags])
        columns = torch.cat([scale * image @ sentence for sentence in bags[i]])
        mil.append(torch.cat([rows, columns]).logsumexp(0) - own.logsumexp(0))
        if len(of_bag[i]):
            against.append(torch.cat([own, of_bag[i]]).logsumexp(0) - own.logsumexp(0))
    parts = [torch.stack(each).mean() for each in (of_caption, mil, against)]
    assert min(map(len, (of_caption, mil, against))) < BATCH  # some are missing
    return both_ways(scale * image @ text.T) + sum(parts), image @ text.T


def own_negatives(model, batch: dict, query: torch.Tensor) -> torch.Tensor:
    """Logits of a query per example with its hard negatives, present or not."""
    wrong = [embed_text(model, texts) for texts in batch["negative_text"]]
    return model.logit_scale.exp() * (torch.stack(wrong) @ query[:, :, None])[..., 0]


def ce_clip(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Ours and the released code's, after the thresholds of a step before, and those of the next.

    Ours: NegCLIP, the rank loss, and the caption against the own negatives as texts, where the
    image stands for the right text. Released: missing negatives are texts like the others, but for
    the rank loss, and every caption has the same target, the first negative of the first.
    """
    image, text, has = (
        *(embed_image(model, batch["image"]), embed_text(model, batch["text"])),
        batch["negative_mask"],
    )
    assert not has[0, 0]
    scale, labels = model.logit_scale.exp(), torch.arange(BATCH)
    own, of_image = scale * (image * text).sum(1), own_negatives(model, batch, image)
    margin = torch.tensor(THRESHOLDS).clamp(0, 10)
    rank = (F.relu(margin + of_image - own[:, None]) * has).mean()

    of_text, costs = own_negatives(model, batch, text), []
    for i in range(BATCH):
        logits = torch.cat([own[i : i + 1], of_text[i][has[i]]])
        costs.append(-F.log_softmax(logits, 0)[0])
    ours = negclip(model, batch)[0] + 0.2 * rank + 0.3 * torch.stack(costs).mean()

    wrong = embed_text(model, batch["negative_text"].flatten(0, 1))
    rows = F.cross_entropy(scale * image @ torch.cat([text, wrong]).T, labels)
    released = (rows + F.cross_entropy(scale * text @ image.T, labels)) / 2 + 0.2 * rank
    released = released + 0.3 * F.cross_entropy(scale * text @ wrong.T, torch.zeros_like(labels))

    kinds = range(has.shape[1])
    gaps = [[(own - of_image[:, k])[has[:, k]].mean() for k in kinds]]
    counted = of_image * has  # of which the zeros are left out
    gaps.append([own.mean() - counted[:, k].sum() / (counted[:, k] != 0).sum() for k in kinds])
    thresholds = torch.stack([torch.stack(each) for each in gaps])
    return shared([ours, released]), image @ text.T, {"thresholds": thresholds}


def read_clip(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """NegCLIP, and half the cross entropy of paraphrases that look for their captions."""
    value, scores = negclip(model, batch)
    has = batch["positive_mask"][:, 0]
    right = embed_text(model, batch["positive_text"][has, 0])
    logits = model.logit_scale.exp() * right @ embed_text(model, batch["text"]).T
    return value + F.cross_entropy(logits, torch.arange(BATCH)[has]) / 2, scores


def degla(model, teacher, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """NegCLIP, the image and the caption against hard negatives, and distances from the teacher.

    The caption's are its own, and those that the mask of the released code chooses: of all
    negatives in the order of captions the ones at i, i + BATCH, ...
    """
    value, scores = negclip(model, batch)
    image, text, has = (
        *(embed_image(model, batch["image"]), embed_text(model, batch["text"])),
        batch["negative_mask"],
    )
    own = model.logit_scale.exp() * (image * text).sum(1)
    of_image = own_negatives(model, batch, image)
    wrong = torch.stack([embed_text(model, texts) for texts in batch["negative_text"]])
    with torch.no_grad():
        taught = [embed_image(teacher, batch["image"]), embed_text(teacher, batch["text"])]
        taught.append(torch.stack([embed_text(teacher, x) for x in batch["negative_text"]]))
    flat, is_there = wrong.flatten(0, 1), has.flatten()
    of_images, of_captions = [], ([], [])
    for i in range(BATCH):
        if has[i].any():
            logits = torch.cat([own[i : i + 1], of_image[i][has[i]]])
            of_images.append(-F.log_softmax(logits, 0)[0])
        count = has.shape[1]
        chosen = range(i * count, (i + 1) * count), range(i, len(flat), BATCH)
        for costs, places in zip(of_captions, chosen, strict=True):
            wrongs = [text[i] @ flat[j] for j in places if is_there[j]]
            logits = 10 * torch.stack([text[i] @ taught[1][i], *wrongs])
            if has[i].any():
                costs.append(-F.log_softmax(logits, 0)[0])
    value = value + 0.1 * torch.stack(of_images).mean()
    value = value + 0.1 * shared([torch.stack(costs).mean() for costs in of_captions])
    distances = [
        (a - b).square().sum(-1) for a, b in zip((image, text, wrong), taught, strict=True)
    ]
    distance = distances[0].sum() + distances[1].sum() + distances[2][has].sum()
    return value + 0.005 * distance, scores


def hard_texts(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean loss of several methods."""
    values = [method(model, batch)[0] for method in (negclip, dac)]
    values += [method(model, batch) for method in (tripletclip, conclip, csclip, clic)]
    scores = embed_image(model, batch["image"]) @ embed_text(model, batch["text"]).T
    return shared(values), scores


def sigmoid_negatives(model, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Every image with its caption, and with all other captions and all negatives, apart."""
    image = F.normalize(model.vision_model(pixel_values=batch["image"]).pooler_output, dim=-1)

    def embed(ids: torch.Tensor) -> torch.Tensor:
        return F.normalize(model.text_model(input_ids=ids).pooler_output, dim=-1)

    text, wrong = embed(batch["text"]), embed(batch["negative_text"][batch["negative_mask"]])
    logits = model.logit_scale.exp() * image @ torch.cat([text, wrong]).T + model.logit_bias
    signs = 2 * torch.eye(*logits.shape) - 1
    return -F.logsigmoid(signs * logits).sum() / BATCH, image @ text.T


CASES = {
    "flair": flair,
    "c2lip": c2lip,
    "hard_texts": hard_texts,
    "hp_hn": hp_hn,
    "sigmoid_negatives": sigmoid_negatives,
    "ce_clip": ce_clip,
    "read_clip": read_clip,
    "degla": degla,
    "fsc_clip": fsc_clip,
    "pacl_own": lambda *args: pacl(*args, is_own=True),
    "pacl_pairs": lambda *args: pacl(*args, is_own=False),
    "sparc": sparc,
}
THRESHOLDS = (0.5, 20.0, -1.0, 2.0)  # of CE-CLIP, from the step before
SIGLIP = ("sigmoid_negatives", "c2lip", "flair")
# case -> width of the text features that its head reads: projected, or of every token
HEADS = {"pacl_own": 16, "pacl_pairs": 16, "sparc": 24}


def make_batch(positives: int) -> dict[str, np.ndarray]:
    """Texts of several lengths; the last example has no hard text, others lack some, and two share
    a positive."""
    rng = np.random.default_rng(0)
    batch = {"image": rng.normal(size=(BATCH, PIXELS, PIXELS, 3)).astype(np.float32)}
    for key, count in (("text", 1), ("positive_text", positives), ("negative_text", 1 + BAG)):
        ids = rng.integers(3, 58, size=(BATCH, count, LENGTH)).astype(np.int32)
        ends = rng.integers(4, LENGTH, size=(BATCH, count, 1))
        batch[key] = np.where(np.arange(LENGTH) >= ends, EOS, ids)
        if key == "text":
            batch[key] = batch[key][:, 0]
        else:
            mask = np.arange(BATCH * count).reshape(BATCH, count) % 5 > 0
            mask[-1] = False
            batch[key.replace("text", "mask")] = mask
    if positives > 1:
        batch["positive_text"][2, 0] = batch["positive_text"][0, 1]  # a phrase of both
    return batch


def main(case: str, out: Path) -> None:
    family = ("siglip",) if case in SIGLIP else ("clip", "quick_gelu")
    model, arrays = (
        shaken(tiny_hugging_face(*family)),
        make_batch(1 if case in ("hp_hn", "read_clip") else BAG),
    )
    head = Head(32, HEADS[case], 16) if case in HEADS else None
    head = Attention(32) if case == "flair" else head
    with torch.no_grad():
        if case in HEADS or case in SIGLIP:
            model.logit_scale.fill_(math.log(SCALE))
        if case in SIGLIP:
            model.logit_bias.fill_(-SCALE)
        for x in head.parameters() if head is not None else ():
            x.add_(0.3 * torch.randn(x.shape))
    model.save_pretrained(out / "before")
    batch = {key: torch.from_numpy(x) for key, x in arrays.items()}
    batch["image"] = batch["image"].permute(0, 3, 1, 2)
    batch = {key: x.long() if key.endswith("text") else x for key, x in batch.items()}
    more = [] if head is None else [head]
    if case == "degla":
        more = [shaken(copy.deepcopy(model))]
        more[0].save_pretrained(out / "teacher")
    value, scores, *others = CASES[case](model, *more, batch)
    value.backward()
    for found in others:
        arrays |= {name: x.detach().numpy() for name, x in found.items()}
    arrays |= {"loss": value.detach().numpy(), "scores": scores.detach().numpy()}
    for name, x in head.named_parameters() if head is not None else ():
        arrays |= {f"head/{name}": x.detach().numpy(), f"head_gradient/{name}": x.grad.numpy()}
    np.savez(out / "io.npz", **arrays)
    with torch.no_grad():
        for x in model.parameters():
            x.copy_(torch.zeros(()) if x.grad is None else x.grad)
    model.save_pretrained(out / "gradient")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
