"""The prompt that LLaVA's weights in a folder are asked with, by their kind."""

import json

import pytest
import tokenizers

from tests.support import llava_folder
from vlc_jax.errors import UsageError
from vlc_jax.evaluators import prompts
from vlc_jax.setup import llava_config
from vlc_jax.weights import lm_config

PHI = {"family": "phi3", "lm": llava_folder.LM | {"window": 2047}}
ORIGINAL = {
    "mm_projector_type": "mlp2x_gelu",
    "mm_vision_tower": "openai/clip-vit-large-patch14-336",
    "image_aspect_ratio": "pad",
}
KINDS = {  # template -> changes of the sizes, of config.json, words of the vocabulary, crop
    "llava_hf": ({}, {}, ("</s>", "<s>"), "centre"),
    "llava_v1": ({}, ORIGINAL, ("</s>", "<s>"), "pad"),
    "llama_3_v": (*({}, {}), ("<|eot_id|>", "<|end_of_text|>", "<|begin_of_text|>"), "centre"),
    "phi_3_v": (PHI, {}, ("<|end|>", "<s>"), "centre"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_is_asked_in_the_template_of_its_kind(name, tmp_path):
    sizes, changes, words, crop = KINDS[name]
    written = lm_config.write(llava_folder.SIZES | {"select": "patch"} | sizes)
    if changes:  # in LLaVA's own form the fields of the language model are at the top
        written = written["text_config"] | changes
    (tmp_path / "config.json").write_text(json.dumps(written))
    vocabulary = {word: i for i, word in enumerate((*words, "<pad>", "A", "USER:", "<image>"))}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    library.add_special_tokens(["<image>"])
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    library.save(str(tmp_path / "tokenizer.json"))
    config = llava_config.config_of_llava(tmp_path)

    template = prompts.TEMPLATES[name]
    before, _, behind = template.text.partition("<image>")
    options = config.text.tokenizer_options
    assert options.template == behind
    assert (options.eos_token, *options.terminators) == template.terminators
    assert options.question == prompts.VQASCORE
    # LLaVA's own code tokenizes the text behind an image alone
    assert options.get("image_token", "") == ("" if changes else "<image>")
    start = words[-1]  # and once more where the template begins with it
    expected = [vocabulary[start], *library.encode(before).ids]
    assert list(config.model.head.prefix) == expected
    assert config.input.crop == crop


def test_the_export_of_plain_captions_is_not_asked_in_a_template(tmp_path):
    written = lm_config.write(llava_folder.SIZES | {"select": "patch"})
    written[llava_config.PROMPT] = {"tokenizer": "words"}
    (tmp_path / "config.json").write_text(json.dumps(written))
    with pytest.raises(
        UsageError, match=r"tokenizer 'words' and no conversations, .*: load the run"
    ):
        llava_config.config_of_llava(tmp_path)
