"""The prompt that LLaVA's weights in a folder are asked with, by their kind."""

import json

import pytest
import tokenizers

from tests.support import llava_folder, small_models
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.tokenizers import make_tokenizer
from vlc_jax.setup import llava_config, weights_config
from vlc_jax.weights import llava_sizes

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
    written = llava_sizes.write(llava_folder.SIZES | {"select": "patch"} | sizes)
    if changes:  # in LLaVA's own form the fields of the language model are at the top
        written = written["text_config"] | changes
    (tmp_path / "config.json").write_text(json.dumps(written))
    vocabulary = (*words, "<pad>", "A", "USER:", "<image>")
    small_models.write_tokenizer(tmp_path, vocabulary, "<pad>", r"[^\s]+", ["<image>"])
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
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
    expected = [vocabulary.index(start), *library.encode(before).ids]
    assert list(config.model.head.prefix) == expected
    assert config.input.crop == crop


@pytest.mark.parametrize("given", [{"family": "clip"}, {"context_length": 9}, {"image_size": 64}])
def test_options_that_its_config_determines_are_refused(tmp_path, given):
    llava_folder.write_config(tmp_path)
    with pytest.raises(UsageError, match=f"determines {next(iter(given))}: leave"):
        weights_config.config_of_weights(tmp_path, **given)


def test_the_export_of_plain_captions_is_not_asked_in_a_template(tmp_path):
    written = llava_sizes.write(llava_folder.SIZES | {"select": "patch"})
    written[llava_config.PROMPT] = {"tokenizer": "words"}
    (tmp_path / "config.json").write_text(json.dumps(written))
    with pytest.raises(
        UsageError, match=r"tokenizer 'words' and no conversations, .*: load the run"
    ):
        llava_config.config_of_llava(tmp_path)


@pytest.fixture
def authors(tmp_path):
    """A folder in LLaVA's own layout: config.json and Llama's tokenizer.model."""
    written = llava_sizes.write(llava_folder.SIZES | {"select": "patch"})["text_config"] | ORIGINAL
    (tmp_path / "config.json").write_text(json.dumps(written))
    small_models.write_pieces(tmp_path / "tokenizer.model", ["USER: a mug ASSISTANT: Yes"] * 8)
    return tmp_path


@pytest.mark.parametrize(
    ("declared", "option"),
    [(None, "<unk>"), ({"pad_token": "[PAD]"}, "<unk>"), ({"pad_token": "<unk>"}, None)],
)
def test_llavas_own_folder_needs_no_padding_piece(authors, declared, option):
    if declared:
        (authors / "special_tokens_map.json").write_text(json.dumps(declared))
    options = llava_config.config_of_llava(authors).text.tokenizer_options.to_dict()
    assert options.get("pad_token") == option
    assert make_tokenizer("conversation", context_length=8, **options).pad_id == 0


def change(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_aspect_ratio": "anyres"}, "image_aspect_ratio is 'anyres'; only 'pad' or 'squa"),
        ({"mm_vision_select_layer": [-2, -5]}, "mm_vision_select_layer is list; only -1000 to -1"),
    ],
)
def test_switches_of_llavas_own_config_are_refused_by_name(authors, fields, message):
    change(authors, **fields)
    with pytest.raises(WeightsError, match=message):
        llava_config.config_of_llava(authors)


def test_pixels_of_llavas_processor_are_used(authors):
    change(authors, image_aspect_ratio="square")
    processor = {"image_processor_type": "LlavaImageProcessor", "do_pad": True, "resample": 2}
    processor |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": 336, "crop_size": 336}
    nested = {"image_processor": processor}
    (authors / "processor_config.json").write_text(json.dumps(nested))
    pixels = llava_config.config_of_llava(authors).input
    assert (pixels.crop, pixels.interpolation) == ("pad", "bilinear")
    assert (pixels.normalisation, pixels.image_size) == ("siglip", 336)
    processor["size"] = processor["crop_size"] = 224
    (authors / "processor_config.json").write_text(json.dumps(nested))
    with pytest.raises(UsageError, match=r"have 224 pixels, the image tower of config\.json 336"):
        llava_config.config_of_llava(authors)


def test_a_key_of_llavas_config_that_is_not_known_is_warned_of(authors, caplog):
    change(authors, mm_new_switch=True)
    llava_config.config_of_llava(authors)
    assert "config.json has keys that are not known here" in caplog.text
    assert "mm_new_switch = True" in caplog.text
