"""Models with a language model, as decoder or text encoder, or with matching."""

from vlc_jax.configs.common.methods.record import (
    FINETUNED,
    L14,
    OF_1280,
    ON_FROZEN,
    SIGLIP,
    Method,
    Row,
    joined,
)

CAPTIONER = "scenes/captioner:depth=2,steps={},batch=256,relations=1"
EMBEDDER = "depth=2,positions=1,relations=1,steps=6000,batch=64"  # sizes of the captioner
# BLIP as in ARO's code, X-VLM as in What'sUp's
MATCHING = "--config.model.head={'scores': 'both'}"
COSINE = "--config.model.head={'scores': 'itc'}"
LLM2CLIP = (  # as docs/mllm.md has it
    "--config.text.tokenizer=vectors",
    "--config.text.tokenizer_options={'path': '{vectors}'}",
    OF_1280,
    "--config.model.text={'connector': 'llm2clip', 'projection': 1280}",
)


def _on_vectors(model: str, run: str, given: str, arguments: str, end: str = "") -> tuple[Row, ...]:
    """The same against a language model's vectors of the texts."""
    return tuple(
        Row(
            f"{model} + {words}{end}",
            f"{run}{'_negatives' * bool(negatives)}",
            joined("llava/llm2vec", arguments, negatives),
            given,
        )
        for words, negatives in FINETUNED.items()
    )


def _lora(model: str, run: str, select: str) -> tuple[Row, ...]:
    """Both stages of a LLaVA."""
    first = f"{run}_stage1"
    return (
        Row("", first, f"llava/stage1:select={select}", "stage1", papers=("acl2025",)),
        Row(model, run, f"llava/stage2:select={select}", "stage2", base=first),
    )


def _blip(data: str) -> tuple[Row, Row]:
    """BLIP finetuned on a set, and its cosines: for retrieval under shuffles, where matching would
    read millions of pairs."""
    model, run, config = f"BLIP base, {data}", f"blip_{data.lower()}", "eval/all:family=blip"
    label = f"{model}, cosine"
    return (
        Row(model, run, config, run, flags=(MATCHING,)),
        Row("", f"{run}_itc", config, run, flags=(COSINE,), papers=("aro",), label=label),
    )


def _whole(model: str, run: str, given: str, base: str) -> Row:
    """A LLaVA whose language model is trained whole; answers graded by hand, here by the letter."""
    config = "llava/stage2:train=all,sets=mmvp,protocols=written"
    return Row(f"LLaVA-1.5-7B + {model}", run, config, given, base=base)


# fmt: off
METHODS = {
    "captioner": Method(
        "captioner", "scenes/captioner", "log p(text given image)", "Li 2025",
        "a small decoder", "transformers: parity/test_llava.py",
        scenes={"captioner": f"{CAPTIONER.format(2400)},positions=1",
                "captioner_800": f"{CAPTIONER.format(800)},positions=1",
                "captioner_pooled": f"{CAPTIONER.format(800)},select=pooled"},
        base="clip_frozen", control="clip_frozen", short="log p(text given image)",
    ),
    "llava": Method(
        "LLaVA-1.5", "llava/stage2", "log p(answer given image)", "Liu 2023",
        "2,048 tokens without the text before the image",
        "transformers: parity/test_llava.py",
        (
            Row("LLaVA-1.5-7B", "llava", "eval/llava:", "llava"),
            Row("Phi-3-V-3.8B", "phi3", "eval/llava:", "phi3"),
            Row("LLaMA-3-V-8B", "llama3", "eval/llava:", "llama3"),
            *_lora("LLaVA-1.5-7B-LoRA", "llava_lora", "patch"),
            *_lora("[CLS]-LLaVA-1.5-7B-LoRA", "llava_cls", "cls"),
            Row("LLaVA-1.5-7B + M3ID (alpha .6, lambda .15)", "llava_m3id", "eval/llava:", "llava"),
            _whole("RP", "llava_rp", "rp", "llava_lora_stage1"),
            Row("", "llava_diva_stage1", "llava/stage1:", "diva", papers=("erroneous_agreements",)),
            _whole("DIVA", "llava_diva", "stage2", "llava_diva_stage1"),
        ),
        {"llava": "scenes/llava:stage=2"}, base="llava_stage1", control="clip_frozen",
        section="mllm.md#llava",
    ),
    "instructblip": Method(
        "InstructBLIP", "eval/llava", "log p(answer given image)", "Dai 2023",
        compared="transformers: parity/test_instructblip.py",
        rows=(Row("InstructBLIP-Vicuna-7B", "instructblip", "eval/llava:", "instructblip"),),
        section="mllm.md#instructblip",
    ),
    "otter": Method(
        "Otter, OpenFlamingo", "eval/llava", "log p(answer given image)", "Li 2023",
        compared="transformers, rest in torch: parity/test_flamingo.py",
        rows=(Row("Otter-Image-MPT7B", "otter", "eval/llava:", "otter"),),
        section="mllm.md#otter-and-openflamingo",
    ),
    "vlm2vec": Method(
        "VLM2Vec", "llava/vlm2vec", "InfoNCE, image to text", "Jiang 2024",
        "256 tokens of text; float32 cosines",
        "transformers, rest in torch: parity/test_llava.py",
        (
            Row("VLM2Vec LLaVA-1.5-7B", "vlm2vec", "llava/vlm2vec:", "vlm2vec"),
            Row("VLM2Vec LLaVA-1.5-7B, no question in the prompt", "vlm2vec_plain",
                "llava/vlm2vec:question=0", "vlm2vec"),
        ),
        {"vlm2vec": f"scenes/vlm2vec:{EMBEDDER}",
         "vlm2vec_plain": f"scenes/vlm2vec:question=0,{EMBEDDER}"},
        base="captioner", control="vlm2vec_plain",
    ),
    "llm2vec": Method(
        "LLM2Vec", "llava/llm2vec", "CLIP", "Li 2024",
        "the logit scale starts anew; answers cut at 512 tokens",
        "transformers, rest in torch: parity/test_text_encoders.py",
        (
            *_on_vectors(f"{L14} + LLM2Vec", "llm2vec", "llm2vec", ""),
            *_on_vectors(f"{SIGLIP} + LLM2Vec", "llm2vec_siglip", "llm2vec_siglip",
                         "family=siglip"),
            *_on_vectors(f"{SIGLIP} + Llama-2-7B-MNTP", "llm2vec_siglip_unlocked",
                         "llm2vec_siglip", "family=siglip,image_tower=unlocked",
                         ", image tower unlocked"),
        ),
        {"text_vectors": "scenes/text_vectors:connector=mlp2x_gelu,steps=400"}, **ON_FROZEN,
        section="Stronger text encoders",
    ),
    "llm2clip": Method(
        "LLM2CLIP", "eval/all", "CLIP", "Huang 2024",
        compared="transformers, rest in torch: parity/test_text_encoders.py",
        rows=(Row("LLM2CLIP", "llm2clip", "eval/all:variant=L/14-336,size=336", "llm2clip",
                  flags=LLM2CLIP),),
        section="Stronger text encoders",
    ),
    "blip": Method(
        "BLIP", "eval/all:family=blip", "matching, or cosine", "Li 2022",
        differs="captions keep their punctuation; all candidates of retrieval",
        compared="transformers: parity/test_blip.py",
        rows=(*_blip("Flickr30k"), *_blip("COCO")),
    ),
    "xvlm": Method(
        "X-VLM", "eval/all:family=xvlm", "matching, or cosine", "Zeng 2022",
        differs="captions keep their punctuation; all candidates of retrieval",
        compared="transformers, rest in torch: parity/test_xvlm.py",
        rows=(
            Row("XVLM-16M", "xvlm", "eval/all:family=xvlm", "xvlm", flags=(MATCHING,),
                papers=("hard_positives",)),
            Row("XVLM-COCO", "xvlm_coco", "eval/all:family=xvlm", "xvlm_coco", flags=(MATCHING,)),
        ),
    ),
    "xvlm_ft": Method(
        "ITC and ITM", "xvlm_ft", "ITC + ITM", "Zeng 2022",
        "without dropout, RandAugment and flips",
        "transformers, rest in torch: parity/test_xvlm.py",
        (Row("XVLM-16M + finetuning", "xvlm_ft", "xvlm_ft:data=llava", "xvlm_llava"),),
        {"xvlm": "xvlm_ft"}, base="clip_mean", control="xvlm_itc",
    ),
}
