"""Runs in an environment with torch: a tiny random BLIP of transformers, and its scores.

  python tests/parity/blip_reference.py OUT

OUT/hf/ is a folder of BlipForImageTextRetrieval with its tokenizer and processor, OUT/authors.pth
the same weights with the authors' names, with what else a checkpoint of theirs holds. OUT/io.npz
gets pixels, ids and mask of texts, and features after block i: of images (image_i), of texts alone
(text_i) and with the last image and [ENC] (fused_i); ITC's cosines (itc); and ITM's logits of every
image with every text, with [CLS] (cls) and with [ENC] (enc).
"""

import re
import sys
from pathlib import Path

import numpy as np
import tiny_bert
import torch
import transformers
from reference import recorded, shaken

TEXTS = ["a red dog", "a dog on the big red mat , and two cats", "the cat", "a big cat"]
# heads of 64, as files of the authors do not say
VISION = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 48, "image_size": 24, "patch_size": 8}  # fmt: skip
TEXT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 40, "max_position_embeddings": 40, "eos_token_id": 3}  # fmt: skip
AUTHORS = (  # of the conversion script of transformers, the other way round
    (r"vision_model\.embeddings\.class_embedding", "visual_encoder.cls_token"),
    (r"vision_model\.embeddings\.position_embedding", "visual_encoder.pos_embed"),
    (r"vision_model\.embeddings\.patch_embedding", "visual_encoder.patch_embed.proj"),
    (r"vision_model\.post_layernorm", "visual_encoder.norm"),
    (r"vision_model\.encoder\.layers", "visual_encoder.blocks"),
    (r"self_attn\.projection", "attn.proj"),
    (r"self_attn", "attn"),
    (r"layer_norm(\d)", r"norm\1"),
)


def main(out: Path) -> None:
    words = sorted({word for text in TEXTS for word in text.split()})
    tokenizer, _ = tiny_bert.build(words)
    vocabulary = len(tokenizer) + 2  # [DEC] and [ENC]
    config = transformers.BlipConfig(
        text_config={**TEXT, "vocab_size": vocabulary}, vision_config=VISION,
        image_text_hidden_size=16,
    )  # fmt: skip
    model = shaken(transformers.BlipForImageTextRetrieval(config), 0.1)
    model.save_pretrained(out / "hf")
    tokenizer.save_pretrained(out / "hf")
    size = {"height": 24, "width": 24}
    transformers.BlipImageProcessor(size=size).save_pretrained(out / "hf")
    save_as_authors(model.state_dict(), out / "authors.pth")

    pixels = torch.randn(3, 3, 24, 24)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    ids, mask = batch["input_ids"], batch["attention_mask"]
    marked = ids.clone()
    marked[:, 0] = vocabulary - 1
    io = {"pixels": pixels.permute(0, 2, 3, 1).numpy(), "ids": ids.numpy(), "mask": mask.numpy()}
    of_image, of_text = {}, {}
    recorded(model.vision_model.encoder.layers, of_image, "image")
    recorded(model.text_encoder.encoder.layer, of_text, "text")
    with torch.no_grad():
        alone = model(ids, pixels, attention_mask=mask, use_itm_head=False)
        io |= {"itc": alone.itm_score.numpy(), **of_image, **of_text}
        for name, first in (("cls", ids), ("enc", marked)):
            rows = []
            for image in pixels:
                many = image[None].expand(len(TEXTS), -1, -1, -1)
                rows.append(model(first, many, attention_mask=mask).itm_score.numpy())
            io[name] = np.stack(rows)
    io |= {name.replace("text", "fused"): x for name, x in of_text.items()}  # of the last image
    np.savez(out / "io.npz", **io)


def save_as_authors(state: dict[str, torch.Tensor], path: Path) -> None:
    def renamed(name: str) -> str:
        for theirs, ours in AUTHORS:
            name = re.sub(theirs, ours, name)
        return name

    model = {renamed(name): array for name, array in state.items()}
    momentum = {
        re.sub(r"^(\w+)", r"\1_m", name): x for name, x in model.items() if "itm" not in name
    }
    more = {"temp": torch.tensor(0.05), "image_queue": torch.ones(2, 3), "idx_queue": torch.ones(1),
            "text_queue": torch.ones(2, 3), "ptr_queue": torch.zeros(1, dtype=torch.long),
            "text_encoder.embeddings.position_ids": torch.arange(40)[None]}  # fmt: skip
    optimizer = {"state": {0: {"exp_avg": torch.ones(3), "step": 7}}}
    whole = {"model": {**model, **momentum, **more}, "optimizer": optimizer,
             "config": {"vit": "base"}, "epoch": 5}  # fmt: skip
    torch.save(whole, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
