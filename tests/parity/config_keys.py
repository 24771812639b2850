"""Runs in an environment with torch: config files as transformers and open_clip write them.

  python tests/parity/config_keys.py OUT

OUT gets a folder per model, with all keys of its config classes.
"""

import dataclasses
import json
import sys
from pathlib import Path

import transformers

from vlc_jax.tools.load_exported import without_torchvision


def main(out: Path) -> None:
    configs = {
        "clip": transformers.CLIPConfig(),
        "metaclip_2": transformers.MetaClip2Config(text_config={"eos_token_id": 2}),
        "siglip": transformers.SiglipConfig(),
        "blip": transformers.BlipConfig(),
        "siglip2": transformers.Siglip2Config(),
        "llava": transformers.LlavaConfig(),
        "paligemma": transformers.PaliGemmaConfig(),
        "gemma3": transformers.Gemma3Config(),
        # the default width is that of no decoder
        "qwen3_vl": transformers.Qwen3VLConfig(vision_config={"out_hidden_size": 4096}),
        "dinov2": transformers.Dinov2Config(),
        "dinov2_with_registers": transformers.Dinov2WithRegistersConfig(),
    }
    texts = (transformers.LlamaConfig, transformers.MistralConfig, transformers.Phi3Config)
    configs |= {
        f"llava_{text.model_type}": transformers.LlavaConfig(text_config=text()) for text in texts
    }
    for name, config in configs.items():
        (out / name).mkdir()
        (out / name / "config.json").write_text(json.dumps(config.to_dict(), default=str))
    without_torchvision()
    from open_clip.model import CLIPTextCfg, CLIPVisionCfg
    from open_clip.transform import PreprocessCfg

    (out / "open_clip").mkdir()
    model = {
        "embed_dim": 512,
        "vision_cfg": dataclasses.asdict(CLIPVisionCfg()),
        "text_cfg": dataclasses.asdict(CLIPTextCfg()),
    }
    content = {"model_cfg": model, "preprocess_cfg": dataclasses.asdict(PreprocessCfg())}
    (out / "open_clip" / "open_clip_config.json").write_text(json.dumps(content))
    folder = Path(sys.modules["open_clip"].__file__).with_name("model_configs")
    for file in sorted(folder.glob("*.json")):
        (out / "shipped" / file.stem).mkdir(parents=True)
        content = {"model_cfg": json.loads(file.read_text()), "preprocess_cfg": {}}
        (out / "shipped" / file.stem / "open_clip_config.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
