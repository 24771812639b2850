"""Runs in an environment with torch: tiny random encoders of transformers, and their features.

  python tests/parity/bert_reference.py OUT

OUT/io.npz gets for bert, roberta and blip (whose blocks attend to images) the weights,
CASE/weights/NAME, and the embeddings and features of every block, CASE/embed and CASE/block_i; and
ids, ends (the last real token of each text), images.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from reference import recorded, shaken

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
         "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 16}  # fmt: skip


def encoder(case: str) -> torch.nn.Module:
    if case == "bert":
        return transformers.BertModel(transformers.BertConfig(**SIZES), add_pooling_layer=False)
    if case == "roberta":
        config = transformers.RobertaConfig(**SIZES, layer_norm_eps=1e-5, type_vocab_size=1)
        return transformers.RobertaModel(config, add_pooling_layer=False)
    config = transformers.BlipTextConfig(**SIZES, encoder_hidden_size=32)
    return transformers.models.blip.modeling_blip_text.BlipTextModel(config, False)


def main(out: Path) -> None:
    torch.manual_seed(0)
    ends = np.array([4, 9, 2, 6])
    ids = torch.randint(5, 50, (4, 10))
    mask = torch.arange(10)[None] <= torch.tensor(ends)[:, None]
    ids[~mask] = 1  # RoBERTa counts positions of all other ids
    images = torch.randn(2, 7, 32)
    io = {"ids": ids.numpy(), "ends": ends, "images": images.numpy()}
    for case in ("bert", "roberta", "blip"):
        model, store = shaken(encoder(case), 0.1), {}
        recorded(model.encoder.layer, store, "block")
        recorded([model.embeddings], store, "embed")
        more = {}
        if case == "blip":  # two texts of each image
            more["encoder_hidden_states"] = images.repeat_interleave(2, 0)
        with torch.no_grad():
            model(input_ids=ids, attention_mask=mask.long(), **more)
        io |= {f"{case}/{name}": array for name, array in store.items()}
        io |= {f"{case}/weights/{name}": x.numpy() for name, x in model.state_dict().items()}
    np.savez(out / "io.npz", **io)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
