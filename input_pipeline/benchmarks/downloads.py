"""Addresses from which files of published sets may be fetched, and what to do for the others.

Files of GitHub are of one commit, with git's hash of their content; the hub lists hashes of its own
files. All are served by the owners of the sets or of their images.
"""

from typing import NamedTuple


class Download(NamedTuple):
    """A file at an address, or the files of a folder of the hub.

    url: http(s)://, or hf://datasets/...
    to: path in ROOT of the file, of the folder of the hub's files, or of the one that an archive
      fills.   digest: sha256 or git's sha1; "": not known.
    images: folder in ROOT by which a reader names a missing image of it; "": `to`.
    """

    url: str
    to: str
    is_archive: bool = False
    digest: str = ""
    images: str = ""


def _github(repository: str, commit: str, folder: str, files: str) -> tuple[Download, ...]:
    """Files of a commit, for a folder of ROOT.   files: lines of path in the repository, digest.

    folder: with "/" at its end it has the folders of the repository, too.
    """
    at = f"https://raw.githubusercontent.com/{repository}/{commit}"
    rows = [line.split() for line in files.strip().splitlines()]
    return tuple(
        Download(
            f"{at}/{path}",
            folder + path if folder.endswith("/") else f"{folder}/{path.rpartition('/')[2]}",
            digest=digest,
        )
        for path, digest in rows
    )


_COCO = "http://images.cocodataset.org"
VAL2017 = Download(f"{_COCO}/zips/val2017.zip", "coco/val2017", is_archive=True)
VAL2014 = Download(f"{_COCO}/zips/val2014.zip", "coco/val2014", is_archive=True)
TRAIN2017 = Download(f"{_COCO}/zips/train2017.zip", "coco/train2017", is_archive=True)
TRAIN2014 = Download(f"{_COCO}/zips/train2014.zip", "coco/train2014", is_archive=True)
_CAPTIONS = Download(
    f"{_COCO}/annotations/annotations_trainval2017.zip", "coco/annotations", is_archive=True
)
_GENOME = "https://cs.stanford.edu/people/rak248/VG_100K_2"
GENOME = (
    Download(f"{_GENOME}/images.zip", "vg/VG_100K", is_archive=True),
    # of an image in neither folder a reader names the first
    Download(f"{_GENOME}/images2.zip", "vg/VG_100K_2", is_archive=True, images="vg/VG_100K"),
)
_BLIP = "https://storage.googleapis.com/sfr-vision-language-research/datasets"
_COCO_KARPATHY = Download(f"{_BLIP}/coco_karpathy_test.json", "coco/coco_karpathy_test.json")
_FLICKR30K = Download(f"{_BLIP}/flickr30k_test.json", "flickr30k/flickr30k_test.json")
_DOCCI = "https://storage.googleapis.com/docci/data"
_CREPE = "https://raw.githubusercontent.com/RAIVNLab/CREPE/1fa81c425f442396fe304f170c8eb6dc0747c814"
_HARD = ("amitakamath/hard_positives", "33addaae84b58d96dc8e9251b61d497c536ed23d")
_EMBEDS = ("lst627/CLIP-Embeds", "1c73a50a153ccc9d89e2eddabb69f8cc05f1a0be")
_HUB = "hf://datasets"

DOWNLOADS: dict[str, tuple[Download, ...]] = {
    **dict.fromkeys(("coco_order", "coco_retrieval"), (_COCO_KARPATHY, VAL2014)),
    **dict.fromkeys(("flickr30k_order", "flickr30k_retrieval"), (_FLICKR30K,)),
    "bivlc": (Download(f"{_HUB}/imirandam/BiVLC/data", "bivlc"),),
    "ccneg": (
        Download(f"{_HUB}/jaisidhsingh/ccneg/ccneg_preprocessed.pt", "ccneg/ccneg_preprocessed.pt"),
        Download(
            f"{_HUB}/jaisidhsingh/ccneg/ccneg_images.zip", "ccneg/ccneg_images", is_archive=True
        ),
    ),
    "coco_counterfactuals": (
        *_github(
            *_EMBEDS,
            "coco_counterfactuals",
            """
            t2v_metrics/datasets/cococounterfactuals.jsonl 2ca33b4d4efeddee1a2dac25aec57bd3cff4acb8
            """,
        ),
        Download(
            f"{_HUB}/Intel/COCO-Counterfactuals/data/images.zip",
            "coco_counterfactuals/images",
            is_archive=True,
        ),
    ),
    "cola": (
        *_github(
            "arijitray1993/COLA",
            "1fa52fba9cff4e6ffb7bfcf3550838748347273b",
            "cola",
            """
            data/COLA_multiobjects_matching_benchmark.json 77fd828bc38e73f80a8e587e6357d3c2a16405cf
            """,
        ),
        *GENOME,
    ),
    "colorfoil": (_CAPTIONS, VAL2017),
    "colorswap": (Download(f"{_HUB}/stanfordnlp/colorswap/data", "colorswap"),),
    "crepe_systematicity": (
        Download(
            f"{_CREPE}/data/syst_hard_negatives.zip",
            "crepe/syst_hard_negatives",
            is_archive=True,
            digest="54eebe3a52eaacd978a08f2a5c1aaa7e53b82b4b",
        ),
        *GENOME,
    ),
    "crepe_productivity": (
        Download(
            f"{_CREPE}/data/prod_hard_negatives.zip",
            "crepe/prod_hard_negatives",
            is_archive=True,
            digest="e73068643923319ab8bd38a43404a34221d41b41",
        ),
        *GENOME,
    ),
    "docci": (
        Download(f"{_DOCCI}/docci_descriptions.jsonlines", "docci/docci_descriptions.jsonlines"),
    ),
    "half_truths": (Download(f"{_HUB}/kbora/Half-Truths/data", "half_truths"),),
    "replace": (
        *_github(
            *_HARD,
            "hard_positives/",
            """
            data/vl_checklist_attributes.json 8502f610e15c0022e316abca4a8412972fd46089
            data/vl_checklist_relations.json 0a79261bf87069525343fd0298dcfc558ba9ac0c
            swapped_data/vl_checklist_attributes.json 2f305ee08a1771a4cd33779d21d1fbebd8f5765a
            swapped_data/vl_checklist_relations.json b60bbe62bc7c0d42e21f2a2b20f3c1fbd9ee7707
            """,
        ),
        *GENOME,
    ),
    "swap": _github(
        *_HARD,
        "hard_positives/",
        """
        data/visual_genome_attribution.json 64f742c8106d0a0fc996b8ae6edecb09703e278f
        swapped_data/visual_genome_attribution.json 064e9409a45574acbf5b9c360969e43cda063e67
        """,
    ),
    "imagecode": (
        *_github(
            "McGill-NLP/imagecode",
            "609f07611aed2599f946c30d730f40a41af1079b",
            "imagecode",
            """
            data/valid_data.json bbb8f73fe817f22f717122fcb162a74db6aa6fda
            """,
        ),
        Download(
            "https://zenodo.org/record/6518944/files/image-sets.zip",
            "imagecode/image-sets",
            is_archive=True,
        ),
    ),
    "mmvp": (
        Download(f"{_HUB}/MMVP/MMVP", "mmvp"),
        *_github(
            *_EMBEDS,
            "mmvp",
            """
            additional_questions/Questions-clip.csv 72565d96bc3be223ded715f953b81fb57d06090c
            """,
        ),
    ),
    "mmvp_vlm": (Download(f"{_HUB}/MMVP/MMVP_VLM", "mmvp_vlm"),),
    "naturalbench_retrieval": (
        Download(
            f"{_HUB}/BaiqiL/NaturalBench/NaturalBench-Retrieval.zip",
            "NaturalBench-Retrieval",
            is_archive=True,
        ),
    ),
    **dict.fromkeys(("negbench", "negbench_retrieval"), (VAL2017,)),
    "negrefcocog": (
        *_github(
            "parkquasar/NegationCLIP",
            "6f858ee490d5c17d54cbc1862dfd44f74f36324d",
            "negrefcocog",
            """
            NegRefCOCOg/NegRefCOCOg.json 2b851551d1a48492c11d6b723333e68de91f7c0c
            """,
        ),
        TRAIN2014,
    ),
    "pope": (
        *_github(
            "AoiDragon/POPE",
            "08d957b917e5a378a2f99d35b6293c536a66298b",
            "pope",
            """
            output/coco/coco_pope_adversarial.json 4eb7fc57596b955756a94bc63d1f967c2afb692a
            output/coco/coco_pope_popular.json eecb09ee9c68becd95e6b18d48433ec68cc261b1
            output/coco/coco_pope_random.json cd2b137f786675decb7442675929885125eeb083
            """,
        ),
        VAL2014,
    ),
    **dict.fromkeys(("coco_spatial_one", "coco_spatial_two"), (VAL2017,)),
    **dict.fromkeys(("gqa_spatial_one", "gqa_spatial_two"), GENOME),
    "spec": (Download(f"{_HUB}/wjpoom/SPEC/data.zip", "spec", is_archive=True),),
    "sugarcrepe": (
        *_github(
            "RAIVNLab/sugar-crepe",
            "0047054b243992f0fad63d6f64f7544862daf846",
            "sugar_crepe",
            """
            data/add_att.json 71c463725f3f9bae0a9227a01ae5d431db235396
            data/add_obj.json 289b22a04690f6f542bb048346021d768ec9b24d
            data/replace_att.json 6393e04971c06cb62a8fed62ef2805ff6c7c5666
            data/replace_obj.json 1585a4a6998d785c043fb923d8e0248436d9da51
            data/replace_rel.json 8716359e17fa36d37e75c6eff5e94826cdb047e5
            data/swap_att.json 375fdd6d372e22e43c0dfbe898c1ec1494016b8c
            data/swap_obj.json db5abe6b488fa38c4b67d1d3da87b6b5c2e1e626
            """,
        ),
        VAL2017,
    ),
    "sugarcrepe_pp": (Download(f"{_HUB}/Aman-J/SugarCrepe_pp/data", "sugarcrepe_pp"), VAL2017),
    "svo_probes": _github(
        "google-deepmind/svo_probes",
        "206219e2afd9640b8bbe6ef95f49b52b0d4ed350",
        "svo_probes",
        """
            svo_probes.csv 2dbab46af1169c2d6feb8b2cee26fe7140ffda19
            """,
    ),
    "valse": (
        *_github(
            "Heidelberg-NLP/VALSE",
            "2152d90d4aecd11f7f74cf03420abcb63efff9c5",
            "valse",
            """
            data/actant-swap.json 6ca5b8ea4031c953a8a2de4a5e06377a5a11ba17
            data/action-replacement.json 7ba2fd2c2039b82755eef5c16283161063759124
            data/coreference-hard.json 7db2ec7b4b2a02723f4dd3c3e14c81f23e456cc8
            data/coreference-standard.json 3dc00f694e14d52f3534e9180e0e2900e5a4d952
            data/counting-adversarial.json 72f5ac7a2c45a59a58c44f9d80cbc555324c3cb2
            data/counting-hard.json 80db438e1c27393a7d90217cfd52d4be96484154
            data/counting-small-quant.json 8458f64b94d02275d2d270781000b79aab964b6c
            data/existence.json b3a65479f36ddc60f419c243a14da1fbfcba71db
            data/foil-it.json 1f2f1c30631c52b98be3bd2383d40dbe855ba908
            data/plurals.json 040fc8c011599574d38ca8ef46376bac5e4204a1
            data/relations.json b3f0a30d41ecd3eec6e36a253ba4de00621eae41
            """,
        ),
        TRAIN2014,
        VAL2014,
        VAL2017,
    ),
    "vismin": (Download(f"{_HUB}/mair-lab/vismin-bench@refs/convert/parquet", "vismin"),),
    "vl_checklist": GENOME,
    "vsr": (
        *_github(
            "cambridgeltl/visual-spatial-reasoning",
            "b27a0af0ee1462d2b6b92c8c83e869d9254a241a",
            "vsr/",
            """
            data/splits/random/test.jsonl 5d9ee349707b99bbef726d6898cf2f0419923d7d
            data/splits/zeroshot/test.jsonl ef6a41c54859fa141c25f67de429514c4339fd7f
            """,
        ),
        TRAIN2017,
        VAL2017,
    ),
    "winoground": (
        Download(
            f"{_HUB}/facebook/winoground/data/examples.jsonl", "winoground/data/examples.jsonl"
        ),
        Download(
            f"{_HUB}/facebook/winoground/data/images.zip", "winoground/images", is_archive=True
        ),
    ),
}
_DRIVE = "Google Drive asks each visitor; the links are in the README of"
# What no address gives, for sets that are not whole without it.
BY_HAND: dict[str, str] = {
    **dict.fromkeys(
        ("vg_relation", "vg_attribution"),
        "annotations and vgr_vga_images.zip: github.com/mertyg/vision-language-models-are-bows "
        "fetches them with gdown from Google Drive (dataset_zoo/aro_datasets.py names the ids)",
    ),
    "swap": "images: those of vg_relation, vgr_vga_images.zip of "
    "github.com/mertyg/vision-language-models-are-bows on Google Drive",
    **dict.fromkeys(
        ("flickr30k_order", "flickr30k_retrieval"),
        "images: their owner sends the link after the form at "
        "shannon.cs.illinois.edu/DenotationGraph",
    ),
    "bla": f"{_DRIVE} github.com/shin-ee-chen/BLA",
    "clevr_bind": "the README of github.com/marthaflinderslewis/clip-binding says how it is made",
    "docci": f"images: {_DOCCI}/docci_images.tar.gz (7.6 GB), unpacked into ROOT/docci",
    "eqben": "dataset.py of github.com/linzhiqiu/t2v_metrics names the archive on Google Drive",
    **dict.fromkeys(("eqben_subset", "eqben_full"), f"{_DRIVE} github.com/Wangt-CN/EqBen"),
    "ncd_squares": f"{_DRIVE} github.com/Raphoo/DCSM_Ideal_CLIP",
    "negbench": "annotations: datasets.md of github.com/m1k2zoo/negbench; images of VOC 2007: "
    "host.robots.ox.ac.uk/pascal/VOC",
    "negbench_retrieval": "annotations: datasets.md of github.com/m1k2zoo/negbench",
    "reporting_bias": "clone github.com/amitakamath/reporting_bias into ROOT: it has the images",
    **dict.fromkeys(
        ("coco_spatial_one", "coco_spatial_two", "gqa_spatial_one", "gqa_spatial_two"),
        f"annotations: {_DRIVE} github.com/amitakamath/whatsup_vlms",
    ),
    **dict.fromkeys(
        ("whatsup_a", "whatsup_b", "whatsup_a_two_way", "whatsup_b_two_way"),
        f"{_DRIVE} github.com/amitakamath/whatsup_vlms",
    ),
    "svo_probes": "images: each at its own address, pos_url and neg_url in svo_probes.csv",
    "urban1k": "the archive of huggingface.co/datasets/BeichenZhang/Urban1k, unpacked into ROOT",
    "valse": "images of SWiG, Visual7W and VisDial: from their sites, after their terms",
    "vl_checklist": "annotations: copy data/ of github.com/om-ai-lab/VL-CheckList; images of HAKE "
    "and SWiG: DATASETS.md there",
    "winoground": "gated: accept the terms at huggingface.co/datasets/facebook/winoground, then "
    "set HF_TOKEN or run hf auth login",
}
