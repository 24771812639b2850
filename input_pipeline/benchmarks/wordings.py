"""Other wordings of published captions: those of DCSM's evaluation.

Kang et al., "Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025), the code of
github.com/Raphoo/DCSM_Ideal_CLIP. It gives its head captions of two dimensions ("behind" becomes
"above"), other models the captions as they are, and both the same beginnings; What'sUp's "on" is
"above" for all models. So its numbers on What'sUp do not compare with those of other papers.
"""

import dataclasses

from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import Caption

# as in the code: parts of words, too ("on one" becomes "above abovee")
_WHATSUP = ((" on", " above"), (" under", " below"))
_TWO_DIMENSIONS = (
    (" behind ", " above "),
    (" in front of ", " below "),
    (" bottom", " below"),
    (" top", " above"),
)
WORDINGS = {"dcsm": _TWO_DIMENSIONS, "dcsm_baseline": ()}
_BEGINNINGS = {"whatsup": "An image of ", "vg_attribution": "An image of "}  # of sets by name


def reworded(benchmark: Benchmark, wording: str) -> Benchmark:
    """The benchmark in a wording: "dcsm" for DCSM's head, "dcsm_baseline" for other models there.

    CLEVR-bind has its beginning in any wording. Raises ValueError for an unknown wording.
    """
    if wording not in WORDINGS:
        raise ValueError(f"wording is one of {', '.join(WORDINGS)}; got {wording!r}")
    changes = (*(_WHATSUP if benchmark.name.startswith("whatsup") else ()), *WORDINGS[wording])
    beginning = next(
        (text for name, text in _BEGINNINGS.items() if benchmark.name.startswith(name)), ""
    )

    def changed(text: Caption) -> Caption:
        if not isinstance(text, str):
            return text
        for old, new in changes:
            text = text.replace(old, new)
        return beginning + text

    def reworded_case(case: Case) -> Case:
        meta = case.meta
        if "positive" in meta:
            meta = meta | {"positive": changed(meta["positive"])}
        return dataclasses.replace(case, captions=tuple(map(changed, case.captions)), meta=meta)

    note = f"captions in the wording {wording}; blind and ceiling are those of the published ones"
    return dataclasses.replace(
        benchmark,
        cases=tuple(map(reworded_case, benchmark.cases)),
        version=f"{benchmark.version}/{wording}",
        notes=(*benchmark.notes, note),
    )
