"""The files of What'sUp: two sets of four of A, one of them that with a label fix, and two of B."""

from pathlib import Path

from tests.support.sets.files import picture, write_json

PHRASES = {
    "left_of": "to the left of",
    "right_of": "to the right of",
    "on": "on",
    "under": "under",
    "in-front_of": "in front of",
    "behind": "behind",
}
SETS = {  # file -> folder of the images, arrangements, objects
    "controlled_images_dataset.json": (
        "controlled_images",
        ("left_of", "right_of", "on", "under"),
        [("pillow", "chair"), ("tea-pot", "side-table")],
    ),
    "controlled_clevr_dataset.json": (
        "controlled_clevr",
        ("left_of", "right_of", "in-front_of", "behind"),
        [("mug", "plate"), ("knife", "bowl")],
    ),
}


def write(root: Path) -> None:
    for name, (images, arrangements, objects) in SETS.items():
        rows = []
        for first, second in objects:
            caption = f"A {first} {{}} a {second}".replace("-", " ")
            for correct in arrangements:
                image = f"{first}_{correct}_{second}.jpeg"
                picture(root / "whatsup" / images / image)
                options = [correct, *(other for other in arrangements if other != correct)]
                rows.append(
                    {
                        "image_path": f"data/{images}/{image}",
                        "caption_options": [caption.format(PHRASES[o]) for o in options],
                    }
                )
        write_json(root / "whatsup" / name, rows)
