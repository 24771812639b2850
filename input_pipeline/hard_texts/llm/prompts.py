"""The prompts of the presets: an instruction, examples as Input/Output pairs, the caption last.

The structure follows the papers (cited in presets.py); words and examples are our own, so answers
differ from the papers', even with the same models.
"""

PLACE = "{caption}"  # replaced by the caption

REPLACE = """\
Below are captions of photographs. Write the last one again with one word exchanged for a synonym. \
The word may name a thing, a property, an action or a place. The new caption has to be true of \
exactly the same photographs, and all other words stay as they are. Give the new caption and \
nothing else.

Input: A little boat lies on the beach.
Output: A small boat lies on the beach.

Input: two people are looking at a painting in a museum
Output: two people are looking at a picture in a museum

Input: A lamp stands beside the bed.
Output: A lamp stands next to the bed.

Input: A boy hops over a puddle of water.
Output: A boy jumps over a puddle of water.

Input: the rug in front of the fireplace is grey
Output: the carpet in front of the fireplace is grey

Input: {caption}
Output:"""

SWAP = """\
Below are captions of photographs, each with two parts joined by the word "and". Write the last \
one again with the two parts in the opposite order. Everything that belongs to a part moves with \
it, so that the new caption is true of exactly the same photographs, and no word is added or lost. \
Give the new caption and nothing else.

Input: A white horse and a brown cow on a hill.
Output: A brown cow and a white horse on a hill.

Input: a kitchen with a stove and a fridge
Output: a kitchen with a fridge and a stove

Input: A dusty and rusty truck is parked in a field.
Output: A rusty and dusty truck is parked in a field.

Input: A woman is sitting on a bench and reading a newspaper.
Output: A woman is reading a newspaper and sitting on a bench.

Input: a plate of rice and beans beside a glass of juice
Output: a plate of beans and rice beside a glass of juice

Input: {caption}
Output:"""

HP_REPLACE = """\
Exchange a single word of the input for one that means the same, so that the sentence keeps its \
meaning. Answer with the new sentence only.
Input: {caption}
Output:"""

# Five examples, as in the paper: two counted things, two colours, two foods, a list, two actions.
HP_SWAP = """\
Exchange what stands before and after "and", so that the sentence keeps its meaning. Answer with \
the new sentence only.

Input: four horses and one donkey
Output: one donkey and four horses

Input: a red and yellow kite flies above the roofs
Output: a yellow and red kite flies above the roofs

Input: a bowl of nuts and raisins stands on the counter
Output: a bowl of raisins and nuts stands on the counter

Input: a desk with a lamp, keyboard and mouse
Output: a desk with a lamp, mouse and keyboard

Input: a girl is riding a bicycle and waving a flag
Output: a girl is waving a flag and riding a bicycle

Input: {caption}
Output:"""

REPLACE_VERB = """\
Exchange one verb of the input for one that means the same, so that the sentence keeps its \
meaning. Answer with the new sentence only, or with None where there is no verb.
Input: A girl holding an umbrella and shouting.
Output: A girl holding an umbrella and yelling.

Input: {caption}
Output:"""

REPLACE_SPATIAL = """\
Exchange one preposition of the input that says where something is for one that means the same, \
so that the sentence keeps its meaning. Answer with the new sentence only, or with None where \
there is no such preposition.
Input: A row of parked bicycles next to a brick wall.
Output: A row of parked bicycles beside a brick wall.

Input: {caption}
Output:"""

# As in the paper: three inverted relations, and a property after its noun.
SVLC_PARAPHRASE = """\
Below are captions of photographs. Write the last one in another way that is true of exactly the \
same photographs. Give the new caption and nothing else.

Input: a boy sitting left of a lamp
Output: a lamp standing to the right of a sitting boy

Input: a horse behind a wooden fence
Output: a wooden fence in front of a horse

Input: a nurse standing to the right of a bed
Output: a bed placed to the left of a standing nurse

Input: a green bottle
Output: a bottle that is green

Input: {caption}
Output:"""

DAC_DENSE = """\
Each input names something that a picture shows. The output is a list of ten sentences about what \
else may be seen in the picture. Every sentence is complete and names the things that it is about.

Input: a lighthouse
Output:
1. A tall white lighthouse stands on a rocky cliff above the sea.
2. Grey waves break against the rocks below the cliff.
3. Two seagulls circle around the lantern room of the lighthouse.
4. A narrow gravel path leads from a gate to the door of the lighthouse.
5. Behind the lighthouse a small red house has smoke rising from its chimney.
6. Short grass and yellow flowers cover the top of the cliff.
7. A wooden bench near the path faces the water.
8. A fishing boat with a blue hull passes in the distance.
9. Dark clouds gather over the horizon while the sun lights the tower.
10. A woman in a raincoat takes a photograph of the lighthouse.

Input: an old man repairing a bicycle in a workshop
Output:
1. An old man with a grey beard bends over a bicycle.
2. The bicycle hangs from a metal stand in the middle of the workshop.
3. The man holds a wrench in his right hand.
4. The front wheel of the bicycle leans against a wooden workbench.
5. Screwdrivers and pliers hang in rows on the wall.
6. A lamp above the workbench throws a warm light on the tools.
7. Black grease stains the man's blue apron.
8. An open box of bolts and nuts stands on the floor.
9. Rubber tyres are stacked in a corner behind the man.
10. Dust covers the window through which a street can be seen.

Input: children are playing in the snow
Output:
1. Three children in thick jackets play in a snowy garden.
2. A girl with a red hat rolls a large ball of snow.
3. A boy throws a snowball at his brother.
4. A half-built snowman with a carrot nose stands beside a hedge.
5. A wooden sledge lies upside down near the fence.
6. The branches of the trees are bent by the snow.
7. Footprints cross the garden from the house to the gate.
8. A small brown dog jumps after a snowball.
9. Icicles hang from the roof of the house.
10. A father with a shovel watches the children from the door.

Input: {caption}
Output:"""

C2LIP_PHRASES = """\
List the noun phrases of the input that name its main things, each once and in its words. Leave \
out places that are only named as the surroundings, such as a house or a street, and remarks such \
as [photograph]. Answer with a numbered list and nothing else.

Input: A boy in a striped sweater feeds a goat, probably on a farm
Output:
1. A boy
2. striped sweater
3. goat

Input: {caption}
Output:"""

# Entities with their properties; relations as whole sentences about two entities.
CSCLIP_UNITS = """\
Divide the input into its parts. First the entities: every thing that it names, once, together \
with its number and properties. Then the relations between two of them, as whole short sentences \
that use the same words for the entities. Write each part in a line of its own, and behind an \
arrow the same part made wrong by one small change: another property, number or thing of the same \
kind, a relation that cannot hold at the same time, or the two things of the relation exchanged. \
A synonym is no change. Give the lines and nothing else.

Input: A man with two grey suitcases waits next to a yellow taxi
Output:
entity: man -> woman
entity: two grey suitcases -> two brown suitcases
entity: yellow taxi -> yellow bus
relation: man is with two grey suitcases -> man is without two grey suitcases
relation: man is waiting next to yellow taxi -> man is sitting in yellow taxi

Input: the sleeping puppy lies under a table
Output:
entity: sleeping puppy -> playing puppy
entity: table -> chair
relation: sleeping puppy is lying under table -> sleeping puppy is lying on table

Input: three boats on a lake
Output:
entity: three boats -> one boat
entity: lake -> meadow
relation: three boats are on lake -> lake is on three boats

Input: {caption}
Output:"""


def fill(prompt: str, caption: str) -> str:
    """The prompt with the caption, whose white space becomes single spaces."""
    return prompt.replace(PLACE, " ".join(caption.split()))
