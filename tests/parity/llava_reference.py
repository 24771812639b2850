"""Runs in an environment with torch: tiny random LLaVAs and language models, and their outputs.

  python tests/parity/llava_reference.py OUT

OUT/<model>/ is a folder as transformers writes it, OUT/<layout>/ the same weights by other names,
OUT/io.npz holds inputs and outputs. Weights are drawn with a standard deviation of 0.2, embeddings
0.5: with those that transformers starts from all logits are small, and mistakes too.
"""

import copy
import json
import re
import sys
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from safetensors.torch import save_file

IMAGE_ID, EOS, SIDE = 120, 2, 28
VISION = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "patch_size": 7,
          "intermediate_size": 48, "image_size": SIDE, "projection_dim": 16,
          "hidden_act": "quick_gelu"}  # fmt: skip
TEXT = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 128,
        "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0,
        "attn_implementation": "eager"}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 10_000.0}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.7],
            "long_factor": [1.5, 3.0, 5.0, 9.0], "rope_theta": 10_000.0,
            "original_max_position_embeddings": 64}  # fmt: skip
# class, changes of TEXT, tokens of the texts
MODELS = {
    "llama2": ("Llama", {"num_key_value_heads": 6}, 20),
    "llama3": ("Llama", {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, 20),
    "llama31": ("Llama", {"rope_parameters": LLAMA3}, 90),
    "phi3": ("Phi3", {}, 20),
    "mistral": ("Mistral", {"sliding_window": 8, "head_dim": 8}, 30),
    "phi3_short": ("Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64},
                   60),
    "phi3_long": ("Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64},
                  90),
    "gemma": ("Gemma", {"head_dim": 16, "num_key_value_heads": 1, "tie_word_embeddings": True,
                        "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6}, 20),
}  # fmt: skip


# The names of other times and other code: (pattern, replacement) of those of transformers.
NAMES = {
    "hf_old": ((r"model\.language_model\.", "language_model.model."),
               (r"lm_head", "language_model.lm_head"),
               (r"model\.vision_tower\.", "vision_tower.vision_model."),
               (r"model\.multi_modal_projector", "multi_modal_projector")),
    "original": ((r"model\.language_model\.", "model."),
                 (r"model\.vision_tower\.", "model.vision_tower.vision_tower.vision_model."),
                 (r"model\.multi_modal_projector\.linear_1", "model.mm_projector.0"),
                 (r"model\.multi_modal_projector\.linear_2", "model.mm_projector.2")),
    "state_dict": (),
}  # fmt: skip


def renamed(state: dict[str, torch.Tensor], layout: str) -> dict[str, torch.Tensor]:
    def new(name: str) -> str:
        for theirs, ours in NAMES[layout]:
            if re.match(theirs, name):
                return re.sub(f"^{theirs}", ours, name)
        return name

    return {new(name): x.clone().contiguous() for name, x in state.items()}


def of_original(text: dict, vision: dict, model_type: str) -> dict:
    """config.json as LLaVA's own code writes it, with the tower that it only names."""
    own = {"model_type": model_type, "mm_projector_type": "mlp2x_gelu", "mm_vision_tower": "tiny",
           "mm_vision_select_layer": -2, "mm_vision_select_feature": "patch"}  # fmt: skip
    return {**text, **own, "vision_config": vision}


def redrawn(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, x in model.named_parameters():
            noise = torch.randn(x.shape, generator=generator)
            if "embed_tokens" in name:
                x.copy_(0.5 * noise)
            elif x.ndim == 1 and "norm" in name and name.endswith("weight"):
                x.copy_(0.2 * noise + ("Gemma" not in type(model).__name__))
            else:
                x.copy_(0.2 * noise)
    return model.eval()


def language_models(out: Path, io: dict) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, (kind, changes, length) in MODELS.items():
        config = getattr(transformers, f"{kind}Config")(**{**TEXT, **changes})
        model = redrawn(getattr(transformers, f"{kind}ForCausalLM")(config))
        model.save_pretrained(out / name)
        ids = torch.randint(3, 128, (2, length), generator=generator)
        io[f"{name}/ids"] = ids.numpy()
        io[f"{name}/logits"] = model(input_ids=ids).logits.numpy()
        for adapter in ("lora", "dora") if name in ("llama3", "phi3") else ():
            io[f"{name}_{adapter}/logits"] = adapted(out, name, adapter, model, ids)


def adapted(out: Path, name: str, kind: str, model, ids: torch.Tensor) -> np.ndarray:
    """Logits with adapters of all matrices, which OUT/NAME_KIND holds."""
    config = peft.LoraConfig(
        r=3, lora_alpha=6, use_dora=kind == "dora", target_modules="all-linear",
        task_type="CAUSAL_LM",
    )  # fmt: skip
    with torch.enable_grad():
        model = peft.get_peft_model(copy.deepcopy(model), config).eval()
    generator = torch.Generator().manual_seed(6)
    for weight_name, x in model.named_parameters():
        if "lora_" in weight_name:
            noise = 0.2 * torch.randn(x.shape, generator=generator)
            x.copy_(x * (1 + noise) if "magnitude" in weight_name else noise)
    model.save_pretrained(out / f"{name}_{kind}")
    return model(input_ids=ids).logits.numpy()


def llava(**changes) -> transformers.LlavaForConditionalGeneration:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=IMAGE_ID, image_seq_length=16, attn_implementation="eager", **changes,
    )  # fmt: skip
    return redrawn(transformers.LlavaForConditionalGeneration(config))


def prompts(padding: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Three rows, of which the second has no image, of different lengths."""
    generator = torch.Generator().manual_seed(5)
    rows = [
        torch.cat([torch.tensor([1]), torch.full((16 * n,), IMAGE_ID),
                   torch.randint(3, 110, (length,), generator=generator)])
        for n, length in ((1, 5), (0, 12), (1, 9))
    ]  # fmt: skip
    longest = max(map(len, rows))
    ids, mask = torch.zeros(3, longest, dtype=torch.long), torch.zeros(3, longest, dtype=torch.long)
    for i, row in enumerate(rows):
        where = slice(len(row)) if padding == "right" else slice(longest - len(row), None)
        ids[i, where], mask[i, where] = row, 1
    return ids, mask


def vision(model, images: torch.Tensor, io: dict) -> None:
    hidden = model.model.vision_tower(images, output_hidden_states=True).hidden_states
    io["hidden_-2"], io["hidden_-1"] = hidden[-2].numpy(), hidden[-1].numpy()
    io["projected"] = model.model.multi_modal_projector(hidden[-2]).numpy()


def generation(model, images: torch.Tensor, io: dict) -> None:
    for padding in ("left", "right"):
        ids, mask = prompts(padding)
        io[f"{padding}/ids"], io[f"{padding}/mask"] = ids.numpy(), mask.numpy()
        both = {"input_ids": ids, "pixel_values": images[[0, 2]], "attention_mask": mask}
        io[f"{padding}/logits"] = model(**both).logits.numpy()
    ids, mask = prompts("left")
    both = {"input_ids": ids, "pixel_values": images[[0, 2]], "attention_mask": mask}
    plain = model.generate(**both, max_new_tokens=24, do_sample=False, eos_token_id=127,
                           pad_token_id=127)  # fmt: skip
    io["generated"] = plain[:, ids.shape[1] :].numpy()
    early = int(io["generated"][0, 5])  # a row that ends early
    ended = model.generate(**both, max_new_tokens=24, do_sample=False, eos_token_id=early,
                           pad_token_id=early)  # fmt: skip
    ended = ended[:, ids.shape[1] :].numpy()
    io["early"] = np.array(early)
    io["generated_early"] = np.pad(ended, ((0, 0), (0, 24 - ended.shape[1])), constant_values=early)


def options(model, images: torch.Tensor, io: dict) -> None:
    """Mean negative log likelihood of options of two prompts, each alone and without padding."""
    ids, mask = prompts("left")
    found = [[40, EOS], [41, 42, 43, EOS], [44, 45, EOS]]
    losses = np.zeros((3, len(found)))
    for i in range(3):
        row = ids[i][mask[i] == 1]
        for j, option in enumerate(found):
            whole = torch.cat([row, torch.tensor(option)])[None]
            labels = torch.full_like(whole, -100)
            labels[0, len(row) :] = whole[0, len(row) :]
            pixels = images[i : i + 1] if IMAGE_ID in row else None
            losses[i, j] = model(input_ids=whole, pixel_values=pixels, labels=labels).loss
    io["losses"] = losses
    io["options"] = np.array([row + [0] * (4 - len(row)) for row in found])
    io["options_valid"] = np.array([[k < len(row) for k in range(4)] for row in found])


def vlm2vec(model, images: torch.Tensor, io: dict) -> None:
    """Features after the last norm at the last token, of unit length."""
    ids, mask = prompts("left")
    read = model.model(input_ids=ids, attention_mask=mask, pixel_values=images[[0, 2]])
    last = read.last_hidden_state[:, -1]
    io["embeddings"] = torch.nn.functional.normalize(last, dim=-1).numpy()


def m3id(model, images: torch.Tensor, io: dict) -> None:
    """Every step runs both texts anew, as the formula reads. The logits are three times as large,
    so that the model is sure of some tokens."""
    model = copy.deepcopy(model)
    model.lm_head.weight.mul_(3)
    alpha, decay, gates = 0.4, 0.15, []
    ids, mask = prompts("left")
    chosen = []
    for i in (0, 2):
        seen = ids[i][mask[i] == 1]
        blind, tokens = seen[seen != IMAGE_ID], []
        for t in range(1, 13):
            more = torch.tensor(tokens, dtype=torch.long)
            conditioned = model(
                input_ids=torch.cat([seen, more])[None], pixel_values=images[i : i + 1]
            ).logits[0, -1].log_softmax(-1)  # fmt: skip
            without = model(input_ids=torch.cat([blind, more])[None]).logits[0, -1].log_softmax(-1)
            gates.append(bool(conditioned.max() < np.log(alpha)))
            weight = (1 - np.exp(-decay * t)) / np.exp(-decay * t) if gates[-1] else 0.0
            tokens.append(int((conditioned + weight * (conditioned - without)).argmax()))
        chosen.append(tokens)
    io |= {"m3id": np.array(chosen), "m3id_gates": np.array(gates)}
    io |= {"m3id_alpha": np.array(alpha), "m3id_decay": np.array(decay)}


def half(model, images: torch.Tensor, io: dict) -> None:
    low = copy.deepcopy(model).to(torch.bfloat16)
    rotary = low.model.language_model.rotary_emb  # a buffer, which keeps float32 in real use
    rotary.inv_freq = model.model.language_model.rotary_emb.inv_freq.clone()
    ids, mask = prompts("right")
    pixels = images[[0, 2]].to(torch.bfloat16)
    logits = low(input_ids=ids, attention_mask=mask, pixel_values=pixels).logits
    io["bfloat16_logits"] = logits.float().numpy()


def layouts(out: Path, model) -> None:
    """The same weights by the names of other times and other code."""
    state = model.state_dict()
    config = json.loads((out / "llava" / "config.json").read_text())
    for layout in NAMES:
        folder, arrays = out / layout, renamed(state, layout)
        folder.mkdir()
        if layout == "hf_old":
            arrays["vision_tower.vision_model.embeddings.position_ids"] = torch.arange(17)[None]
        save_file(arrays, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
    torch.save(state, out / "state_dict" / "pytorch_model.bin")
    (out / "state_dict" / "model.safetensors").unlink()
    original = of_original(config["text_config"], config["vision_config"], "llava_llama")
    (out / "original" / "config.json").write_text(json.dumps(original))
    model.save_pretrained(out / "sharded", max_shard_size="40KB")
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out / "bfloat16")


def main(out: Path) -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    io: dict = {}
    language_models(out, io)
    model = llava()
    model.save_pretrained(out / "llava")
    llava(vision_feature_select_strategy="full").save_pretrained(out / "llava_full")
    layouts(out, model)
    images = torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(4))
    io["images"] = images.permute(0, 2, 3, 1).numpy()
    for write in (vision, generation, options, vlm2vec, m3id, half):
        write(model, images, io)
    np.savez(out / "io.npz", **io)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
