"""Zero-shot evaluation of pretrained CLIP, SigLIP, EVA-CLIP, PE, OpenVision, BLIP, X-VLM weights.

  python -m vlc_jax.main --mode eval --workdir runs/zero_shot \\
    --config configs/eval/zero_shot.py:weights=FILE,tokenizer=FILE,path=DATA/captions.json
  python -m vlc_jax.main --mode eval --workdir runs/zero_shot \\
    --config configs/eval/zero_shot.py:weights=FILE,tokenizer=FILE,root=DIR,sets=imagenet1k+vtab

Arguments: weights (a file or folder of OpenAI, open_clip, Hugging Face or big_vision); family
(clip, also EVA-CLIP, clip_hf, siglip, siglip2, pe, openvision, also CLIPA, or blip, xvlm, qwen3_vl,
whose variant and size come from the weights); variant (vlc_jax/models/variants.py); tokenizer (its
file or folder; not needed if it is in the folder of the weights); size (pixels); path, image_folder
(a table of images and captions, or a folder that vlc-jax prepare wrote, for retrieval: all of it);
run (the workdir of a run, instead of weights); sets (names of configs/common/classification.py
joined by +; imagenet is ImageNet and its five shifts, vtab its 19 tasks, vtab_20 those of Kamath et
al., all); probe (sets for linear probes, with the split train); root (their folders, NAME or
wds_NAME as Hugging Face's clip-benchmark calls them); names (folder of CLIP_benchmark's
en_classnames.json and en_zeroshot_classification_templates.json, for sets without these files of
their own; by default of an installed clip_benchmark); ids (LOC_synset_mapping.txt, for ImageNet-A
and -R in folders of classes); split; count (cases of each set, the first; 0 for all). CLIP weights
that are not OpenAI's need their activation: --config.model.activation=gelu; EVA-CLIP's comes with
the variant. Files beside the weights that contradict the config are refused.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, classification, pretrained


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        **pretrained.ARGUMENTS,
        **classification.ARGUMENTS,
        family="clip",
        variant="B/32",
        size=224,
        run="",
    )
    config = default.get_config()
    with config.unlocked():
        pretrained.use_run_or_weights(config, args)
        evals = classification.evals(args)
        if args.path or not evals:
            evals["retrieval"] = {"split": "all"}
        config.evals = ConfigDict(evals)
    return config
