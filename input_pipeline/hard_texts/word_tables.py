"""Word lists of the generators: from the papers, and our own."""

import functools
from collections.abc import Mapping


def _words(text: str) -> tuple[str, ...]:
    return tuple([" ".join(words.split()) for words in text.split(",")])


def _groups(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(map(_words, text.split(";")))


# ---- SVLC: Doveh et al., "Teaching structured vision & language concepts to vision & language
# models" (CVPR 2023), the word classes of the authors' code with their slips: "bamboo " ends in a
# space, and a missing comma makes one word of "stained" and "good".
SVLC_CLASSES: Mapping[str, tuple[str, ...]] = {
    "color": _words(
        """teal, brown, green, black, silver, white, yellow, purple, gray, blue, orange, red, blond,
        concrete, cream, beige, tan, pink, maroon, olive, violet, charcoal, bronze, gold, navy,
        coral, burgundy, mauve, peach, rust, cyan, clay, ruby, amber"""
    ),
    "action": _words(
        """above, across, against, along, attached to, behind, belonging to, between, carrying,
        covered in, covering, eating, flying in, for, from, growing on, hanging from, has, holding,
        in, in front of, laying on, looking at, lying on, made of, mounted on, near, of, on,
        on back of, over, painted on, parked on, part of, playing, riding, says, sitting on,
        standing on, under, using, walking in, walking on, watching, wearing, wears, with"""
    ),
    "size": _words(
        """long, old, extended, light, hefty, scraggy, heavy, scanty, broad, little, stout, curvy,
        miniature, thickset, emaciated, minute, tiny, illimitable, sizable, bulky, mammoth,
        strapping, enormous, obese, towering, fleshy, petite, underweight, compact, measly, teensy,
        grand, puny, expansive, oversize, trim, beefy, lanky, slender, gaunt, pocket-size, wee,
        cubby, mini, thick, full-size, pint-size, unlimited, elfin, minuscule, thin, epic, outsized,
        trifling, huge, scrawny, giant, portly, wide, brawny, limitless, stocky, big, large, slim,
        immense, skimpy, immeasurable, skeletal, colossal, meager, tall, gigantic, pudgy, extensive,
        overweight, tubby, cosmic, microscopic, teeny, boundless, life-size, squat, fat, paltry,
        undersized, bony, lean, small, chunky, massive, sturdy, great, rotund, endless, narrow,
        titanic, hulking, short, infinitesimal, skinny, gargantuan, plump, vast"""
    ),
    "state": _words(
        """tinted, dust, dirty, flip, calm, burnt, sad, dry, sunny, old, young, broken, stormy,
        overcast, unhappy, cloudless, adult, wet, foggy, curly, stained, rough, pale, white, fresh,
        stainedgood, new, first, last, long, great, little, own, other, right, big, high, different,
        small, large, next, early, important, few, public, bad, same, able"""
    ),
    "material": (
        *_words("rubber, metal, denim, wooden, cloth, silk, plastic"),
        "bamboo ",
        *_words(
            """stone, wicker, brick, smooth, steel, iron, silver, wool, gold, glass, helium,
            hydrogen, ice, lace, lead, alloy, aluminum, asbestos, ash, brass, bronze,
            carbon dioxide, cardboard, cement, chalk, charcoal, clay, coal, copper, cotton, dust,
            fiberglass, gas, leather, linen, magnesium, man-made fibers, marble, mercury, mortar,
            mud, nickel, nitrogen, nylon, oil, oxygen, paper, paraffin, petrol, plaster, platinum,
            polyester, sand, slate, smoke, soil, steam, straw, tin, uranium, water, wood, zinc"""
        ),
    ),
}
# Replacements in mode "clean", and phrases in which it ignores the words of a class.
SVLC_REPAIRED = {"bamboo ": "bamboo", "stainedgood": "good"}
SVLC_PHRASES = (
    *(f"{word} top of" for word in SVLC_CLASSES["action"] if f" {word}".endswith(" on")),
    *(f"{word} front of" for word in SVLC_CLASSES["action"] if word.endswith(" in")),
    *_words("next to, in back of, because of, out of, in between, as long as"),
    *_words("to the right, on the right, at the right, at first, at last, each other"),
)

# ---- Words of these groups do not contradict each other: none is a negative of another.
SAME_MEANING: tuple[frozenset[str], ...] = tuple(map(frozenset, _groups(
    """big, large, huge, enormous, giant, gigantic, massive, immense, colossal, vast, great,
    mammoth, titanic, gargantuan, hulking, towering, oversize, outsized, sizable, grand, bulky,
    hefty, expansive, extensive; boundless, endless, limitless, unlimited, illimitable,
    immeasurable, infinitesimal, cosmic, epic, vast; small, little, tiny, mini, miniature,
    minuscule, minute, petite, teeny, teensy, wee, puny, compact, microscopic, undersized, elfin,
    pint-size, pocket-size, measly, infinitesimal; thin, slim, slender, skinny, lean, lanky,
    scrawny, scraggy, gaunt, bony, skeletal, emaciated, underweight, narrow, trim; fat, obese,
    overweight, plump, pudgy, tubby, chunky, portly, rotund, stout, fleshy, thickset, stocky,
    heavy, thick, bulky, beefy, brawny, sturdy, strapping, hefty, big, large, squat;
    meager, paltry, scanty, skimpy, measly, trifling, small, little;
    broad, wide, extensive, expansive; long, extended, tall, lanky, towering; sad, unhappy;
    sunny, cloudless; foggy, overcast, stormy; dirty, stained; new, fresh, young, early;
    next, other, different; wood, wooden, bamboo;
    cloth, cotton, denim, linen, silk, wool, nylon, polyester, lace, man-made fibers; metal, steel,
    iron, tin, aluminum, copper, brass, bronze, alloy, silver, zinc, nickel;
    stone, brick, concrete, cement, marble, slate, mortar, plaster, clay; paper, cardboard;
    dust, ash, sand, soil, mud; water, ice, steam; smoke, gas, steam; gold, amber, yellow;
    brown, tan, beige, bronze, rust, clay; red, maroon, burgundy, ruby, rust;
    purple, violet, mauve; blue, navy, teal, cyan; green, olive, teal;
    gray, grey, silver, charcoal; black, charcoal; white, cream, pale; pink, coral, peach;
    orange, amber, peach, coral; above, over, on, on top of; under, below, beneath, underneath;
    near, by, beside, next to, close to, with, along, against, attached to;
    in, inside, inside of, within; in front of, before, near; behind, in back of, on back of, near;
    wearing, wears, has, with, in; carrying, holding, with, has; looking at, watching;
    laying on, lying on, on; sitting on, standing on, riding, on; walking on, walking in, on, in;
    parked on, mounted on, painted on, growing on, on; hanging from, attached to, from;
    covered in, with, in; child, girl; child, boy; child, baby;
    of, part of, belonging to, made of, from"""
)))  # fmt: skip

# ---- Our CREPE-style tables (no list is published): words of one group exclude each other. Nouns
# are in the singular, verbs in the -ing form.
CREPE_GROUPS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "object": _groups(
        """man, woman, boy, girl, child, baby; dog, cat, horse, cow, sheep, goat, pig, elephant,
        giraffe, zebra, bear, lion, monkey, duck;
        car, bus, truck, train, bicycle, motorcycle, airplane, boat, helicopter, tractor;
        chair, table, bed, couch, desk, bench, shelf, stool;
        pizza, sandwich, cake, salad, burger, soup, donut, pasta;
        apple, banana, orange, pear, lemon, strawberry; broccoli, carrot, potato, tomato, onion;
        fork, knife, spoon; cup, bottle, bowl, plate, vase, pan;
        phone, laptop, camera, television, radio, keyboard;
        sink, toilet, bathtub, stove, refrigerator, oven;
        hat, shirt, jacket, dress, tie, scarf, glove, shoe; tree, flower, bush, cactus;
        house, church, barn, bridge, tower, tent;
        river, beach, field, mountain, forest, desert, street;
        kitchen, bathroom, bedroom, office, garage;
        skateboard, surfboard, snowboard, frisbee, kite, umbrella"""
    ),
    "color": _groups(
        "red, green, blue, yellow, purple, orange, pink, brown, black, white, gray, grey"
    ),
    "size": _groups(
        """big, small; large, small; huge, tiny; giant, tiny; tall, short; long, short;
        wide, narrow; thick, thin; little, big; high, low"""
    ),
    "material": _groups("wooden, metal, plastic, glass, brick, stone, leather, rubber, paper"),
    "state": _groups(
        """old, young; old, new; wet, dry; open, closed; full, empty; clean, dirty; hot, cold;
        happy, sad; dark, bright; sunny, cloudy; fresh, rotten; smooth, rough; soft, hard;
        ripe, unripe; broken, intact"""
    ),
    "action": _groups(
        """standing, sitting, lying, kneeling;
        walking, running, jumping, crawling, flying, swimming, sleeping;
        eating, cooking, cutting, throwing, washing; riding, pushing, pulling, repairing;
        holding, dropping; smiling, crying; reading, writing, drawing; wearing, removing;
        buying, selling; opening, closing"""
    ),
    "relation": _groups(
        """on, under; on top of, underneath; above, below; over, under, beneath;
        in front of, behind; in, outside; inside, outside; inside of, outside of;
        next to, far from; near, far from; close to, far from; beside, behind; left of, right of;
        to the left of, to the right of; on the left, on the right; into, out of; with, without;
        up, down; toward, away from; towards, away from"""
    ),
}  # fmt: skip
IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "sheep": "sheep", "knife": "knives",
    "shelf": "shelves", "cactus": "cacti", "pasta": "pasta",
}  # fmt: skip

# ---- REPLACE hard positives of Kamath et al., "The hard positive truth about vision-language
# compositionality" (ECCV 2024): phrase -> replacement, tried in this order. Inferred from the
# published benchmark; they reproduce every caption of it. Several are not synonyms.
REPLACE: Mapping[str, Mapping[str, str]] = {
    "action": {
        "standing": "upright", "sitting": "seated", "walking": "strolling",
        "eating": "ingesting", "hanging": "dangling", "looking": "gazing",
    },
    "color": {
        "white": "ivory", "black": "ebony", "blue": "sapphire", "brown": "chestnut",
        "red": "crimson", "green": "emerald", "silver": "metallic",
    },
    "size": {
        "large": "big", "small": "tiny", "long": "lengthy", "big": "large", "huge": "big",
    },
    "state": {
        "wet": "damp", "smiling": "happy", "old": "aged", "clear": "unclouded",
        "young": "youthful",
    },
    "spatial_relation": {
        "in": "within", "IN": "within", "behind": "to the rear of", "on top of": "on",
        "near": "next to", "next to": "near", "under": "beneath", "by": "near",
        "above": "on top of",
    },
    "action_relation": {
        "WEARING": "in", "wearing": "in", "holding": "grasping", "sitting": "seated",
        "wears": "in", "hanging": "dangling", "walking": "strolling",
        "riding on": "traveling on", "riding": "traveling on",
    },
}  # fmt: skip

# Exceptions in mode "clean". Words after "in" that rule out "within":
NOT_WITHIN = _words(
    """front, back, rear, background, foreground, middle, center, centre, corner, side, between,
    wild, distance, process, act, air, flight, action, motion, line, a line, a row, rows, half,
    use, hand, bloom, order, color, formation, unison, closeup, opposite direction,
    opposite directions, different directions"""
)
CLOTHES = _words(
    """apron, attire, bikini, boots, cap, clothes, clothing, coat, costume, costumes, dress,
    dresses, gear, gloves, gown, hat, hats, helmet, helmets, hoodie, jacket, jackets, jeans,
    jersey, outfit, outfits, overalls, pajamas, pants, robe, robes, scarf, shawl, shirt, shirts,
    shoes, shorts, skirt, skis, socks, suit, suits, sunglasses, sweater, sweatshirt, swimsuit,
    t-shirt, tie, ties, top, tops, trunks, tuxedo, uniform, uniforms, vest, vests, wetsuit,
    wetsuits"""
)
# phrase -> regular expression of words that make a set phrase with it
SET_PHRASES: Mapping[str, str] = {
    "by": "far|hand|itself|himself|herself|themselves|the way",
    "sitting": "(?:rooms?|areas?|up)",
    "standing": "(?:rooms?|up|ovation)",
    "walking": "(?:sticks?|canes?|paths?|trails?|shoes)",
    "eating": "(?:areas?|utensils|place)",
    "looking": "(?:like|forward|glass)",
    "big": "ben",
    "long": "(?:as|ago|jump)",
    "old": "(?:fashioned|town)",
}

# ---- Left/right negatives of the CLIP-Embeds code ("On erroneous agreements of CLIP image
# embeddings", section 4.2), in the order of its file.
LEFT_RIGHT: Mapping[str, str] = {
    "on the left": "on the right", "on the right": "on the left",
    "to the left": "to the right", "to the right": "to the left",
    "at the left": "at the right", "at the right": "at the left",
}  # fmt: skip
LEFT_RIGHT_WORDS: Mapping[str, str] = {"left": "right", "right": "left"}


def plural(noun: str) -> str:
    """The plural of a noun of CREPE_GROUPS."""
    if noun in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[noun]
    if noun.endswith(("s", "sh", "ch", "x", "tomato", "potato")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def same_meaning(first: str, second: str) -> bool:
    """True if the two words do not contradict each other."""
    return first == second or not _meanings(first).isdisjoint(_meanings(second))


@functools.cache
def _meanings(word: str) -> frozenset[int]:
    return frozenset(i for i, group in enumerate(SAME_MEANING) if word in group)
