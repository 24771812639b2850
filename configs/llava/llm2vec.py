"""CLIP's or SigLIP's image tower against a language model's vectors of texts, and a connector.

  vlc-jax embed_text --model Llama-2-7b-chat-hf --format llama_2_chat \\
    --adapter LLM2Vec-Llama-2-7b-chat-hf-mntp --out vectors.safetensors --dtype bfloat16 \\
    --config configs/llava/llm2vec.py:weights=ViT-L-14-336px.pt,path=A.json,negatives=leftright
  python -m vlc_jax.main --workdir runs/llm2vec --config \\
    configs/llava/llm2vec.py:weights=ViT-L-14-336px.pt,path=A.json,vectors=vectors.safetensors

"On Erroneous Agreements of CLIP Image Embeddings" (2024), tables 5 and 10: CLIP and SigLIP, with
negatives=leftright, and with image_tower=unlocked.

Batch, rate, decay, epochs, warmup and connector, LLaVA-1.5's, are the paper's (appendix B). All
answers of a conversation form one long caption, the reason for a language model.

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
    config = leftright.make(args)
    with config.unlocked():
        heads.use_vectors(config, args.vectors, args.connector)
    return config
