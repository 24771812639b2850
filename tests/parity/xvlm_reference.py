"""Runs in an environment with torch: a tiny random X-VLM of transformers' parts, and its scores.

  python tests/parity/xvlm_reference.py OUT

Parts: SwinModel, BertModel for texts alone, BlipTextModel for the blocks that attend to images, and
torch.nn for the rest. OUT/checkpoint.pth has their weights with the authors' names, as finetuned
checkpoints have them, OUT/pretrained.th as pretrained ones, each with what else theirs hold, beside
the tokenizer. OUT/io.npz gets pixels, ids and mask of texts; features after each block of images
(image_i), of texts alone (text_0) and with the last image (fused_0); the mean token (pooled);
cosines (itc); and the logits of every image with every text (itm). Of training on the pairs and
negatives of xvlm_negatives.py: the losses as the authors compute them (loss_itc, loss_itm) and the
gradient of their sum, by the temperature (temp), and by all else in OUT/gradient.pth with the names
of checkpoint.pth.
"""

import re
import sys
from pathlib import Path

import numpy as np
import tiny_bert
import torch
import transformers
from reference import recorded, shaken
from xvlm_negatives import IMAGE_NEGATIVES, PAIRS, TEXT_NEGATIVES

TEXTS = ["a red dog", "a dog on the big red mat , and two cats", "the cat", "a big cat"]
SWIN = {"image_size": 64, "embed_dim": 16, "depths": [2, 1, 1, 1], "num_heads": [2, 4, 8, 16],
        "window_size": 2}  # fmt: skip
# heads of 64, as files of the authors do not say
TEXT = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 40, "max_position_embeddings": 40}  # fmt: skip
EMBED = 16


def authors_swin(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Arrays of SwinModel with the names of Swin's authors, queries, keys and values as one."""
    renamed = {}
    for name, array in state.items():
        if match := re.fullmatch(r"(.*attention\.)q_proj\.(\w+)", name):
            parts = [state[f"{match[1]}{part}_proj.{match[2]}"] for part in "qkv"]
            name, array = f"{match[1]}qkv.{match[2]}", torch.cat(parts)
        elif re.search(r"\.[kv]_proj\.", name):
            continue
        for theirs, ours in (
            (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
            (r"^embeddings\.norm", "patch_embed.norm"),
            (r"^encoder\.", ""),
            (r"attention\.relative_position_bias\.", "attention."),
            (r"attention\.o_proj", "attention.proj"),
            (r"attention\.", "attn."),
            (r"layernorm_before", "norm1"),
            (r"layernorm_after", "norm2"),
            (r"^layernorm", "norm"),
        ):
            name = re.sub(theirs, ours, name)
        renamed[name] = array
    return renamed


def main(out: Path) -> None:
    words = sorted({word for text in TEXTS for word in text.split()})
    tokenizer, _ = tiny_bert.build(words)
    tokenizer.save_pretrained(out)
    text = {**TEXT, "vocab_size": len(tokenizer)}
    image = shaken(transformers.SwinModel(transformers.SwinConfig(**SWIN)), 0.1)
    alone = shaken(transformers.BertModel(transformers.BertConfig(**text), False), 0.1)
    config = transformers.BlipTextConfig(**text, encoder_hidden_size=128)
    fusion = transformers.models.blip.modeling_blip_text.BlipTextModel(config, False)
    fusion = shaken(fusion, 0.1)
    width = 2 * text["hidden_size"]
    match = (torch.nn.Linear(128, width), torch.nn.LayerNorm(width), torch.nn.GELU())
    rest = torch.nn.ModuleDict(
        {
            "vision_proj": torch.nn.Linear(128, EMBED),
            "text_proj": torch.nn.Linear(128, EMBED),
            "itm_head": torch.nn.Sequential(*match, torch.nn.Linear(width, 2)),
        }
    )
    rest = shaken(rest, 0.1)
    save(image, alone, fusion, rest, out)

    pixels = torch.randn(3, 3, 64, 64)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    ids, mask = batch["input_ids"], batch["attention_mask"]
    io = {"pixels": pixels.permute(0, 2, 3, 1).numpy(), "ids": ids.numpy(), "mask": mask.numpy()}
    recorded([block for layer in image.encoder.layers for block in layer.blocks], io, "image")
    recorded(alone.encoder.layer, io, "text")
    recorded(fusion.encoder.layer, io, "fused")
    with torch.no_grad():
        seen = image(pixels)
        tokens = torch.cat([seen.pooler_output[:, None], seen.last_hidden_state], 1)
        texts = alone(ids, attention_mask=mask).last_hidden_state
        embeds = (
            torch.nn.functional.normalize(rest[name](x[:, 0]), dim=-1)
            for name, x in (("vision_proj", tokens), ("text_proj", texts))
        )
        images, captions = embeds
        rows = []
        for one in tokens:
            many = one[None].expand(len(TEXTS), -1, -1)
            fused = fusion(encoder_embeds=texts, attention_mask=mask, encoder_hidden_states=many)
            rows.append(rest["itm_head"](fused.last_hidden_state[:, 0]).numpy())
    io |= {"pooled": seen.pooler_output.numpy(), "itc": (images @ captions.T).numpy()}
    kept = dict(io)  # training calls the blocks that are recorded once more
    io = kept | trained(image, alone, fusion, rest, pixels, ids, mask)
    named = authors_names(*map(gradient, (image, alone, fusion.encoder.layer[0], rest)))
    torch.save({"model": named}, out / "gradient.pth")
    np.savez(out / "io.npz", **io, itm=np.stack(rows))


def trained(image, alone, fusion, rest, pixels, ids, mask) -> dict[str, np.ndarray]:
    """get_contrastive_loss and get_matching_loss of X-VLM on one GPU, with these negatives."""
    functional, temp = torch.nn.functional, torch.tensor(0.05, requires_grad=True)
    seen = image(pixels)
    tokens = torch.cat([seen.pooler_output[:, None], seen.last_hidden_state], 1)[PAIRS]
    texts = alone(ids, attention_mask=mask).last_hidden_state
    images = functional.normalize(rest["vision_proj"](tokens[:, 0]), dim=-1)
    captions = functional.normalize(rest["text_proj"](texts[:, 0]), dim=-1)
    logits, index = images @ captions.T / temp, torch.tensor(PAIRS)
    labels = (index[:, None] == index[None]).float()
    labels = labels / labels.sum(1, keepdim=True)
    sides = [-(functional.log_softmax(x, 1) * labels).sum(1).mean() for x in (logits, logits.T)]
    itc = sum(sides) / 2

    def fused(tokens, texts, mask):
        options = {"attention_mask": mask, "encoder_hidden_states": tokens}
        return fusion(encoder_embeds=texts, **options).last_hidden_state[:, 0]

    positive = fused(tokens, texts, mask)
    negative = fused(
        torch.cat([tokens[IMAGE_NEGATIVES], tokens]),
        torch.cat([texts, texts[TEXT_NEGATIVES]]),
        torch.cat([mask, mask[TEXT_NEGATIVES]]),
    )
    output = rest["itm_head"](torch.cat([positive, negative]))
    itm = functional.cross_entropy(output, torch.tensor([1] * 4 + [0] * 8))
    (itc + itm).backward()
    found = {"loss_itc": itc, "loss_itm": itm, "temp": temp.grad}
    return {name: x.detach().numpy() for name, x in found.items()}


def gradient(module) -> dict[str, torch.Tensor]:
    """Gradients in place of the parameters of a state_dict; 0 for what was not used."""
    found = dict(module.state_dict())  # with buffers
    for name, x in module.named_parameters():
        found[name] = torch.zeros_like(x) if x.grad is None else x.grad
    return found


def authors_names(image, alone, layer, rest) -> dict[str, torch.Tensor]:
    model = {f"vision_encoder.{k}": x for k, x in authors_swin(image).items()}
    model |= {f"text_encoder.{k}": x for k, x in alone.items()}
    model |= {f"text_encoder.encoder.layer.1.{k}": x for k, x in layer.items()}
    return {**model, **rest, "temp": torch.tensor(0.05)}


def save(image, alone, fusion, rest, out: Path) -> None:
    parts = (image, alone, fusion.encoder.layer[0], rest)
    model = authors_names(*(part.state_dict() for part in parts))
    block = "vision_encoder.layers.0.blocks.1.attn"
    model |= {f"{block}_mask": torch.ones(2, 3), f"{block}.relative_position_index": torch.ones(2)}
    model["text_encoder.embeddings.position_ids"] = torch.arange(40)[None]
    config = {"image_res": 64, "optimizer": {"opt": "adamW", "lr": 3e-5}}
    torch.save({"model": model, "config": config}, out / "checkpoint.pth")
    pretrained = {k.replace("text_encoder.", "text_encoder.bert."): x for k, x in model.items()}
    more = ("bbox_head.0.weight", "text_encoder.cls.predictions.bias")
    pretrained |= dict.fromkeys(more, torch.ones(2))
    torch.save({"model": pretrained, "config": config}, out / "pretrained.th")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
