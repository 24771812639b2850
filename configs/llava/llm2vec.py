"""CLIP's or SigLIP's image tower against a language model's vectors of texts, and a connector.

  vlc-jax embed_text --model Llama-2-7b-chat-hf --format llama_2_chat \\
    --adapter LLM2Vec-Llama-2-7b-chat-hf-mntp --out vectors.safetensors --dtype bfloat16 \\
    --config configs/llava/llm2vec.py:weights=ViT-L-14-336px.pt,path=A.json+B.json
  python -m vlc_jax.main --workdir runs/llm2vec --config \\
    configs/llava/llm2vec.py:weights=ViT-L-14-336px.pt,path=A.json+B.json,vectors=vectors.safetensors

"On Erroneous Agreements of CLIP Image Embeddings" (2024), tables 5 and 10: CLIP and SigLIP, with
negatives=leftright, and with image_tower=unlocked.

Batch, rate, decay, epochs and warmup are the paper's (appendix B), as in configs/leftright.py,
and so is the connector, LLaVA-1.5's projector to the width of the image's embedding. All answers of
a conversation form one long caption, the reason for a language model.

Left / right negatives that are made at each reading have no vectors; prepare them with the data,
  vlc-jax prepare llava --annotations A.json+B.json --images A+B --size 384 \\
    --answers joined --negatives left_right --out prepared/llava_joined \\
    --generator-options '{"left_right": {"mode": "authors"}}'
and use path=prepared/llava_joined in both commands.

Arguments: the arguments of configs/leftright.py:data=coco (negatives=none); vectors (a file of all
texts); connector=mlp2x_gelu|linear|llm2clip|none (vlc_jax/models/text_vectors.py).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import leftright
from vlc_jax.configs.common import arguments, heads

ARGUMENTS = leftright.COCO | {
    "negatives": arguments.OneOf("none", "leftright"),
    "answers": "joined",
    "vectors": "",
    "connector": "mlp2x_gelu",
}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    if args.negatives == "leftright" and args.path.endswith(".json"):
        raise ValueError(
            "negatives=leftright: negatives of conversations are made at each reading and "
            "have no vectors: prepare them with the data and name its folder, path=FOLDER"
        )
    config = leftright.make(args)
    with config.unlocked():
        heads.use_vectors(config, args.vectors, args.connector)
    return config
