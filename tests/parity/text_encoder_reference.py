"""Runs in an environment with torch: tiny random text encoders made of language models.

  python tests/parity/text_encoder_reference.py OUT

OUT/<case>/ is a causal Llama as transformers writes it, with its tokenizer, OUT/<case>_adapter/ a
LoRA of its bidirectional form, OUT/llm2clip/ an LLM2CLIP, OUT/io.npz inputs and outputs. Features
of all tokens, and vectors, are computed with a mask of four dimensions, on batches with padding on
the left. Weights are drawn as in llava_reference.py.
"""

import json
import sys
from pathlib import Path

import numpy as np
import peft
import tokenizers
import torch
import transformers
from llava_reference import TEXT, redrawn
from safetensors.torch import save_file

TEXTS = ["a red dog", "two dogs on the left of a very big table, and a cat", "red", "A cat?"]
INSTRUCTION = "Retrieve images of this:"
HEADER = "<|start_header_id|>user<|end_header_id|>\n\n"
CASES = {  # its format, the text around, start token
    "llama_2_chat": ("[INST] ", " [/INST]", "<s>"),
    "llama_3_instruct": (HEADER, "<|eot_id|>", "<|begin_of_text|>"),
}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 7,
          "intermediate_size": 48, "image_size": 28, "hidden_act": "quick_gelu"}  # fmt: skip
WIDTH, EMBED = 48, 10


def tokenizer(out: Path, start: str) -> transformers.PreTrainedTokenizerFast:
    """BPE with a start token; of words with a space before, or as in Llama 3 of bytes."""
    is_bytes = start == "<|begin_of_text|>"
    library = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=not is_bytes))
    split = tokenizers.pre_tokenizers
    library.pre_tokenizer = split.ByteLevel(False) if is_bytes else split.Metaspace()
    special = [start, "</s>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    pieces = [] if is_bytes else [f"<0x{i:02X}>" for i in range(256)]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special + pieces,
        initial_alphabet=split.ByteLevel.alphabet() if is_bytes else [],
        show_progress=False,
    )
    library.train_from_iterator([*TEXTS * 4, INSTRUCTION, "[INST] a [/INST]", HEADER], trainer)
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, 0)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, bos_token=start, eos_token="</s>", pad_token="</s>",
        padding_side="left",
    )  # fmt: skip
    fast.save_pretrained(out)
    return fast


def vectors(model, tokenizer, frame: tuple[str, str], instruction: str):
    """Ids, mask, features of all tokens, and their mean over each text and the end of the frame."""
    before, after = frame
    whole = [before + (f"{instruction} " if instruction else "") + text + after for text in TEXTS]
    batch = tokenizer(whole, padding=True, return_tensors="pt")
    keys = batch["attention_mask"][:, None, None].expand(-1, 1, batch["input_ids"].shape[1], -1)
    additive = torch.where(keys == 1, 0.0, torch.finfo(torch.float32).min)
    hidden = model(input_ids=batch["input_ids"], attention_mask=additive).last_hidden_state
    counts = [len(tokenizer(text + after, add_special_tokens=False)["input_ids"]) for text in TEXTS]
    pooled = torch.stack([row[-n:].mean(dim=0) for row, n in zip(hidden, counts, strict=True)])
    return batch["input_ids"], batch["attention_mask"], hidden, pooled


def language_model(out: Path, case: str, io: dict) -> None:
    *frame, start = CASES[case]
    words = tokenizer(out / case, start)
    config = transformers.LlamaConfig(**{**TEXT, "vocab_size": len(words), "bos_token_id": 0})
    whole = redrawn(transformers.LlamaForCausalLM(config))
    whole.save_pretrained(out / case)
    adapter = peft.LoraConfig(r=3, lora_alpha=6, target_modules="all-linear")
    with torch.enable_grad():
        model = peft.get_peft_model(whole.model, adapter).eval()
    generator = torch.Generator().manual_seed(6)
    for name, x in model.named_parameters():
        if "lora_" in name:
            x.copy_(0.1 * torch.randn(x.shape, generator=generator))
    model.save_pretrained(out / f"{case}_adapter")
    for name, instruction in (("with", INSTRUCTION), ("without", "")):
        found = vectors(model, words, frame, instruction)
        for key, value in zip(("ids", "mask", "hidden", "pooled"), found, strict=True):
            io[f"{case}/{name}/{key}"] = value.numpy()
    with model.disable_adapter():
        io[f"{case}/no_adapter"] = vectors(model, words, frame, "")[3].numpy()


class Block(torch.nn.Module):
    """A residual block of LLM2CLIP's adapter."""

    def __init__(self) -> None:
        super().__init__()
        layers = (torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Dropout(0.0),
                  torch.nn.Linear(2 * WIDTH, WIDTH))  # fmt: skip
        self.fn, self.ln = torch.nn.Sequential(*layers), torch.nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fn(self.ln(x))


def llm2clip(out: Path, io: dict) -> None:
    torch.manual_seed(2)
    adaptor = torch.nn.Sequential(
        *(Block() for _ in range(4)), torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, EMBED)
    )
    vision = transformers.CLIPVisionConfig(**VISION, projection_dim=EMBED)
    image = redrawn(transformers.CLIPVisionModelWithProjection(vision))
    redrawn(adaptor)
    state = {f"text_adapter.adaptor.{name}": x for name, x in adaptor.state_dict().items()}
    for name, x in image.state_dict().items():
        state[name if name.startswith("visual") else f"vision_model.{name.split('.', 1)[1]}"] = x
    state |= {"logit_scale": torch.tensor(3.0)}
    (out / "llm2clip").mkdir()
    save_file({k: x.clone().contiguous() for k, x in state.items()},
              out / "llm2clip" / "model.safetensors")  # fmt: skip
    config = {"model_type": "clip", "vision_config": VISION, "projection_dim": EMBED}
    (out / "llm2clip" / "config.json").write_text(json.dumps(config))
    texts = 3 * torch.randn(5, WIDTH)
    pixels = torch.randn(3, 3, 28, 28)
    io["llm2clip/vectors"] = texts.numpy()
    io["llm2clip/text"] = adaptor(texts / texts.norm(dim=-1, keepdim=True)).numpy()
    io["llm2clip/pixels"] = pixels.permute(0, 2, 3, 1).numpy()
    io["llm2clip/image"] = image(pixel_values=pixels).image_embeds.numpy()


def main(out: Path) -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    io: dict = {}
    for case in CASES:
        language_model(out, case, io)
    llm2clip(out, io)
    np.savez(out / "io.npz", **io)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
