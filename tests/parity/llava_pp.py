"""Runs in an environment with torch: a tiny LLaMA-3-V or Phi-3-V, its VQAScores and its answers.

  python tests/parity/llava_pp.py llama_3_v|phi_3_v FOLDER PICTURES.npy TEXTS.json

FOLDER gets weights, config.json and tokenizer.json by the names of mbzuai-oryx/LLaVA-pp, and
found.json: the mean log probability of "Yes" and the end token for each picture and caption, and
the greedy answer to a question about each picture. The towers are those of transformers; templates
and the order of tokens follow the code of the ACL 2025 paper (lst627/CLIP-Embeds). TEXTS.json:
{"captions": [...], "question": "..."}.
"""

import json
import sys
from pathlib import Path

import llava_reference
import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import save_file

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions."
)
ROLE = "<|start_header_id|>{}<|end_header_id|>\n\n"
LLAMA_3 = "<|begin_of_text|>{}{}<|eot_id|>{}<image>\n{{}}<|eot_id|>{}"
LLAMA_3 = LLAMA_3.format(ROLE.format("system"), SYSTEM, *map(ROLE.format, ("user", "assistant")))
PHI_3 = "<|system|>\nYou are a helpful AI assistant.<|end|>\n"
PHI_3 += "<|user|>\n<image>\n{}<|end|>\n<|assistant|>\n"
# model -> prompt, start, end, config of the language model
MODELS = {
    "llama_3_v": (LLAMA_3, "<|begin_of_text|>", "<|eot_id|>", transformers.LlamaConfig,
                  {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}),
    "phi_3_v": (PHI_3, "<s>", "<|end|>", transformers.Phi3Config, {"sliding_window": 2047}),
}  # fmt: skip
SPECIAL = ("<s>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>", "<|system|>", "<|user|>", "<|assistant|>",
           "<|end|>")  # fmt: skip
VQASCORE = 'Does this figure show "{}"? Please answer yes or no.'
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
PATCHES = 16


def write_tokenizer(path: Path, start: str, texts: list[str]) -> tokenizers.Tokenizer:
    """Words between spaces and line ends; a text begins with the start token, as with theirs."""
    other = ("<s>", "<|begin_of_text|>")[start == "<s>"]
    special = [name for name in SPECIAL if name != other]
    words = {word for text in texts for word in text.replace("\n", " \n ").split(" ")}
    vocabulary = ["<unk>", *special, *sorted({"Yes", *words} - {"", *special})]
    table = {word: index for index, word in enumerate(vocabulary)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(table, unk_token="<unk>"))
    split = tokenizers.Regex(r"\n|[^\s]+")
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(split, "removed", invert=True)
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, table[start])]
    )
    library.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in special])
    library.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<unk>"}))
    return library


def ids_of(prompt: str, library: tokenizers.Tokenizer) -> list[int]:
    """Ids of a prompt: both sides of the image by themselves, one start token before the first."""
    before, behind = (library.encode(part).ids for part in prompt.split("<image>"))
    return before + PATCHES * [llava_reference.IMAGE_ID] + behind[1:]


def main(name: str, folder: Path, pictures: str, texts: str) -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    prompt, start, end, kind, fields = MODELS[name]
    given = json.loads(Path(texts).read_text())
    asked = [VQASCORE.format(caption) for caption in given["captions"]]
    folder.mkdir()
    library = write_tokenizer(folder, start, [prompt, *asked, given["question"]])
    assert library.get_vocab_size() < llava_reference.IMAGE_ID
    text = kind(**{**llava_reference.TEXT, "eos_token_id": library.token_to_id(end), **fields})
    vision = transformers.CLIPVisionConfig(**llava_reference.VISION)
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=llava_reference.IMAGE_ID,
        image_seq_length=PATCHES, attn_implementation="eager",
    )  # fmt: skip
    model = llava_reference.redrawn(transformers.LlavaForConditionalGeneration(config))
    save_file(llava_reference.renamed(model.state_dict(), "original"), folder / "model.safetensors")
    model_type = {"llama_3_v": "llava_llama", "phi_3_v": "llava_phi"}[name]
    written = llava_reference.of_original(text.to_dict(), vision.to_dict(), model_type)
    (folder / "config.json").write_text(json.dumps(written | {"image_aspect_ratio": "pad"}))

    pixels = torch.from_numpy((np.load(pictures) / np.float32(255) - MEAN) / STD)
    pixels, answer = pixels.permute(0, 3, 1, 2), [library.token_to_id(x) for x in ("Yes", end)]
    scores = np.zeros((len(pixels), len(asked)))
    for column, question in enumerate(asked):
        ids = torch.tensor([ids_of(prompt.format(question), library) + answer] * len(pixels))
        log_p = model(input_ids=ids, pixel_values=pixels).logits.log_softmax(-1)
        scores[:, column] = (log_p[:, -3, answer[0]] + log_p[:, -2, answer[1]]) / 2
    ids = torch.tensor([ids_of(prompt.format(given["question"]), library)] * len(pixels))
    ended = {"do_sample": False, "eos_token_id": answer[1], "pad_token_id": answer[1]}
    whole = model.generate(input_ids=ids, pixel_values=pixels, max_new_tokens=12, **ended)
    answers = [library.decode(row.tolist()) for row in whole[:, ids.shape[1] :]]
    found = {"scores": scores.tolist(), "answers": answers}
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
