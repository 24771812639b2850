"""Runs in an environment with torch: a tiny random MPT, and Flamingo over it, and their outputs.

  python tests/parity/flamingo_reference.py OUT

OUT/mpt is a folder as transformers writes it, OUT/otter one in the names of Otter, OUT/otter_bin
the same in shards of torch, OUT/flamingo a checkpoint in the names of OpenFlamingo beside its CLIP
and MPT; OUT/io.npz holds inputs and outputs. transformers has MPT and CLIP, but no Flamingo: the
resampler and the cross attention are written here, a token at a time where masks matter.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

IMAGE, END, WIDTH, FEATURES, EVERY = 120, 121, 48, 32, 2
VISION = {"hidden_size": FEATURES, "num_hidden_layers": 2, "num_attention_heads": 4,
          "patch_size": 7, "intermediate_size": 48, "image_size": 28, "hidden_act": "quick_gelu",
          "projection_dim": 16}  # fmt: skip
MPT = {"d_model": WIDTH, "n_heads": 6, "n_layers": 4, "vocab_size": 128, "max_seq_len": 64,
       "attn_config": {"alibi": True, "alibi_bias_max": 8}}  # fmt: skip


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, width: int, features: int, norms: tuple[str, ...]) -> None:
        super().__init__()
        for name in norms:
            setattr(self, name, nn.LayerNorm(width))
        self.to_q, self.to_kv = linear(width, 512), linear(features, 1024)
        self.to_out = linear(512, width)

    def mix(self, queries: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """(queries, width) of one text or image over (tokens, features)."""
        found = []
        for q, k, v in zip(self.to_q(queries).split(64, -1), *(
            part.split(64, -1) for part in self.to_kv(x).chunk(2, -1)), strict=True):  # fmt: skip
            found.append(torch.softmax(q @ k.T / 8, -1) @ v)
        return self.to_out(torch.cat(found, -1))


def feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width), linear(width, 4 * width), nn.GELU(), linear(4 * width, width)
    )


class Block(Attention):
    """Of the resampler."""

    def __init__(self) -> None:
        super().__init__(FEATURES, FEATURES, ("norm_media", "norm_latents"))
        self.feed_forward = feed_forward(FEATURES)

    def forward(self, latents: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        queries = self.norm_latents(latents)
        latents = latents + self.mix(queries, torch.cat([self.norm_media(x), queries]))
        return latents + self.feed_forward(latents)


class Resampler(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(64, FEATURES))
        self.layers = nn.ModuleList([Block() for _ in range(6)])
        self.norm = nn.LayerNorm(FEATURES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        latents = self.latents
        for block in self.layers:
            latents = block(latents, x)
        return self.norm(latents)


class Cross(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention(WIDTH, FEATURES, ("norm",))
        self.feed_forward = feed_forward(WIDTH)
        self.attn_gate, self.ff_gate = (nn.Parameter(torch.zeros(1)) for _ in range(2))

    def forward(self, x, latents, ids):
        """One text; latents: of its images."""
        rows = []
        for place, row in enumerate(x):
            number = int((ids[: place + 1] == IMAGE).sum())
            if number:
                seen = self.attn.mix(self.attn.norm(row[None]), latents[number - 1])[0]
                row = row + self.attn_gate.tanh() * seen
            rows.append(row + self.ff_gate.tanh() * self.feed_forward(row))
        return torch.stack(rows)


class Flamingo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vision_encoder = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION))
        self.perceiver = Resampler()
        self.lang_encoder = transformers.MptForCausalLM(transformers.MptConfig(**MPT))
        self.cross = nn.ModuleList([Cross() for _ in range(MPT["n_layers"] // EVERY)])
        blocks = self.lang_encoder.transformer.blocks
        for cross, block in zip(self.cross, blocks[EVERY - 1 :: EVERY], strict=True):
            block.register_forward_pre_hook(self.hook(cross))

    def hook(self, cross: Cross):
        def run(_, arguments):
            rows = zip(arguments[0], self.latents, self.ids, strict=True)
            return torch.stack([cross(*row) for row in rows]), *arguments[1:]

        return run

    def forward(self, images, ids, mask):
        """images: (texts, images, 3, 28, 28); ids of one length, padding under mask."""
        tokens = self.vision_encoder(images.flatten(0, 1)).last_hidden_state[:, 1:]
        latents = torch.stack([self.perceiver(x) for x in tokens])
        self.latents, self.ids = latents.unflatten(0, images.shape[:2]), ids
        return self.lang_encoder(input_ids=ids, attention_mask=mask).logits


def redrawn(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, x in model.named_parameters():
            noise = torch.randn(x.shape, generator=generator)
            is_norm = x.ndim == 1 and name.endswith("weight")
            x.copy_(0.5 + noise.abs() if "gate" in name else 0.2 * noise + is_norm)
    return model.eval()


def of_otter(model: Flamingo) -> dict[str, torch.Tensor]:
    """The state in Otter's names."""
    state = {}
    for name, x in model.state_dict().items():
        if name.startswith("cross."):
            index, rest = name.removeprefix("cross.").split(".", 1)
            layer = EVERY * int(index) + EVERY - 1
            name = f"lang_encoder.transformer.blocks.{layer}.gated_cross_attn_layer.{rest}"
        name = re.sub(r"(blocks\.\d+\.)(?!gated)", r"\1decoder_layer.", name)
        if not name.startswith("vision_encoder.vision_model."):
            name = name.replace("vision_encoder.", "vision_encoder.vision_model.")
        if "lm_head" not in name:
            state[name] = x.clone().contiguous()
    return state


def of_open_flamingo(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The trained part of Otter's state in OpenFlamingo's names, with three tokens less."""
    part = {k: x for k, x in state.items() if re.search("perceiver|gated|wte", k)}
    part["lang_encoder.transformer.wte.weight"] = part["lang_encoder.transformer.wte.weight"][:-3]
    names = ((r"(perceiver\.layers\.\d+\.)(?=norm|to_)", r"\g<1>0."),
             (r"(perceiver\.layers\.\d+\.)feed_forward", r"\g<1>1"),
             (r"layer\.feed_forward", "layer.ff"))  # fmt: skip
    for theirs, ours in names:
        part = {re.sub(theirs, ours, name): x for name, x in part.items()}
    return part


def write_json(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write(out: Path, model: Flamingo) -> None:
    state = of_otter(model)
    text = {**MPT, "model_type": "mpt", "hidden_size": WIDTH}
    config = {"model_type": "otter", "cross_attn_every_n_layers": EVERY, "text_config": text,
              "only_attend_previous": True,
              "vision_config": {**VISION, "model_type": "clip_vision_model"}}  # fmt: skip
    for name in ("otter", "otter_bin"):
        write_json(out / name / "config.json", config)
    save_file(state, out / "otter/model.safetensors")
    halves = [dict(list(state.items())[side::2]) for side in range(2)]
    names = [f"pytorch_model-0000{side + 1}-of-00002.bin" for side in range(2)]
    for name, half in zip(names, halves, strict=True):
        torch.save(half, out / "otter_bin" / name)
    where = {k: name for name, half in zip(names, halves, strict=True) for k in half}
    write_json(out / "otter_bin/pytorch_model.bin.index.json", {"weight_map": where})
    write_json(
        out / "flamingo/open/config.json",
        {"model_type": "open_flamingo", "lang_encoder_path": "some/mpt",
         "clip_vision_encoder_path": "some/clip", "cross_attn_every_n_layers": EVERY},
    )  # fmt: skip
    torch.save(of_open_flamingo(state), out / "flamingo/open/checkpoint.pt")
    model.lang_encoder.save_pretrained(out / "mpt")
    model.lang_encoder.save_pretrained(out / "flamingo/mpt")
    # the whole CLIP of which OpenFlamingo reads the tower
    model.vision_encoder.config.save_pretrained(out / "flamingo/clip")
    tower = {k.removeprefix("vision_encoder."): x for k, x in state.items() if "vision_" in k}
    tower["logit_scale"] = torch.zeros(())
    save_file(tower, out / "flamingo/clip/model.safetensors")


def texts(side: str) -> dict[str, np.ndarray]:
    """Rows with an image at the start, with two, behind words, and with none, padded on a side."""
    generator = torch.Generator().manual_seed(5)
    ids, mask = torch.zeros(4, 16, dtype=torch.long), torch.zeros(4, 16, dtype=torch.long)
    for row, (length, places) in enumerate(((12, [0]), (16, [0, 9]), (13, [4]), (11, []))):
        words = torch.randint(3, 110, (length,), generator=generator)
        words[places] = IMAGE
        columns = slice(length) if side == "right" else slice(16 - length, None)
        ids[row, columns], mask[row, columns] = words, 1
    return {"ids": ids, "mask": mask}


def main(out: Path) -> None:
    torch.manual_seed(0)
    model, io = redrawn(Flamingo()), {}
    write(out, model)
    images = torch.randn(4, 2, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    io["images"] = images.permute(0, 1, 3, 4, 2).numpy()
    tokens = model.vision_encoder(images[:, 0]).last_hidden_state[:, 1:]
    io["latents"] = torch.stack([model.perceiver(x) for x in tokens]).numpy()
    for side in ("right", "left"):
        given = texts(side)
        io |= {f"{side}/{key}": x.numpy() for key, x in given.items()}
        io[f"{side}/logits"] = model(images, **given).numpy()
    plain = transformers.MptForCausalLM.from_pretrained(out / "mpt")
    io["mpt/logits"] = plain(input_ids=given["ids"], attention_mask=given["mask"]).logits.numpy()
    ids = texts("right")["ids"][:2, :12]
    io["prompt"] = ids.numpy()
    for _ in range(5):
        logits = model(images[:2], ids, torch.ones_like(ids))
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
    io["generated"] = ids[:, 12:].numpy()
    np.savez(out / "io.npz", **io)


if __name__ == "__main__":
    with torch.no_grad():
        main(Path(sys.argv[1]))
