"""Five captions of a scene, each in the style of a different speaker; none of them describes everything."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from vsehub.data.scenes.images import Scene, Thing

T = TypeVar("T")

# The plain word first, then synonyms. A plain texture and a medium size are mostly not mentioned.
WORDS = {
    "red": ("red", "crimson", "scarlet"),
    "blue": ("blue", "navy", "azure"),
    "yellow": ("yellow", "golden", "lemon"),
    "green": ("green", "emerald", "olive"),
    "orange": ("orange", "amber", "tangerine"),
    "white": ("white", "pale", "ivory"),
    "black": ("black", "dark", "ebony"),
    "pink": ("pink", "rosy", "magenta"),
    "purple": ("purple", "violet", "lilac"),
    "brown": ("brown", "chestnut", "chocolate"),
    "circle": ("circle", "disc", "ball", "round thing"),
    "square": ("square", "box", "block"),
    "star": ("star", "five pointed star", "starfish"),
    "heart": ("heart", "love heart", "valentine"),
    "triangle": ("triangle", "pyramid", "wedge"),
    "ring": ("ring", "hoop", "donut"),
    "moon": ("moon", "crescent", "half moon"),
    "cross": ("cross", "plus sign", "plus"),
    "diamond": ("diamond", "rhombus", "kite"),
    "hexagon": ("hexagon", "six sided tile", "honeycomb cell"),
    "small": ("small", "tiny", "little"),
    "medium": ("", "", "medium sized"),
    "large": ("large", "big", "huge"),
    "plain": ("", "", "", "", "solid"),
    "striped": ("striped", "stripy", "lined"),
    "dotted": ("dotted", "spotted", "speckled"),
    "checked": ("checked", "checkered", "plaid"),
}
# Each background as the place of a thing, then as a view without things.
GROUNDS = {
    "sky": (("in the sky", "in front of clouds", "up in the air"), ("a blue sky with clouds", "a cloudy sky")),
    "grass": (("on the grass", "on a lawn", "in a green field"), ("a green meadow", "a field of grass")),
    "sea": (("on the sea", "over the ocean", "on the water"), ("the sea with waves", "deep blue water")),
    "sand": (("on the sand", "at the beach", "in the desert"), ("a sandy beach", "a yellow desert")),
    "night": (("at night", "in the night sky", "among the stars"), ("a starry night", "the sky at night")),
    "brick": (("on a brick wall", "against bricks", "in front of a wall"), ("a brick wall", "an old brick house")),
    "snow": (("in the snow", "on a white hill", "in winter"), ("a snowy hill", "a cold winter day")),
    "wall": (("in a room", "against a plain wall", "above the floor"), ("an empty room", "a bare grey wall")),
}
# By row from the top, then by column from the left.
PLACES = (
    (
        ("at the top left", "in the upper left corner"),
        ("at the top", "high up"),
        ("at the top right", "in the upper right corner"),
    ),
    (("on the left", "at the left side"), ("in the middle", "in the center"), ("on the right", "at the right side")),
    (
        ("at the bottom left", "in the lower left corner"),
        ("at the bottom", "low down"),
        ("at the bottom right", "in the lower right corner"),
    ),
)
NUMBERS = {2: ("two", "a pair of", "a couple of"), 3: ("three", "several", "a few")}


def describe(scene: Scene, rng: np.random.Generator) -> list[str]:
    """Five ASCII captions of a scene, one from each speaker, in random order."""
    people = (_terse, _careful, _fanciful, _dreamy, _counting)
    return [people[number](scene, rng) for number in rng.permutation(len(people))]


def _terse(scene: Scene, rng: np.random.Generator) -> str:
    """Names one thing, usually the biggest: such a caption fits many pictures."""
    biggest = max(scene.things, key=lambda thing: ("small", "medium", "large").index(thing.size))
    thing = biggest if rng.random() < 0.7 else _any(rng, scene.things)
    said = [_word(rng, thing.colour, plain=True)] if rng.random() < 0.85 else []
    if rng.random() < 0.35:
        said.insert(0, _word(rng, thing.texture, plain=True))
    bare = _join([*said, _word(rng, thing.shape, plain=True)])
    return _any(rng, (bare, _a(bare), _a(bare)))


def _careful(scene: Scene, rng: np.random.Generator) -> str:
    """Names all things, most of them with size, texture, colour and place."""
    things = []
    for thing in scene.things:
        noun = _name(rng, thing, plain=True, texture=0.9, size=0.8)
        things.append(f"{_a(noun)} {_place(rng, thing)}" if rng.random() < 0.85 else _a(noun))
    said = _join([_list(things), _any(rng, GROUNDS[scene.background][0][:2])])
    return f"{said.capitalize()}."


def _fanciful(scene: Scene, rng: np.random.Generator) -> str:
    """Uses synonyms for all words; may omit a thing."""
    things = scene.things[: 2 if rng.random() < 0.6 else 3]
    nouns = _list([_a(_name(rng, thing, plain=False, texture=0.6, size=0.4)) for thing in things])
    start = _any(rng, ("", "", "look at", "i can see", "what a lovely picture of"))
    return _join([start, nouns, _any(rng, GROUNDS[scene.background][0]) if rng.random() < 0.7 else ""])


def _dreamy(scene: Scene, rng: np.random.Generator) -> str:
    """Describes the background, and at most one thing on it."""
    view = _any(rng, GROUNDS[scene.background][1])
    thing = _any(rng, scene.things)
    noun = _name(rng, thing, plain=True, texture=0.1, size=0.1, colour=0.7)
    said = (
        view,
        f"{view} and {_a(noun)}",
        f"{view} with {_a(noun)} {_place(rng, thing)}",
        f"a picture of {view} with something {_word(rng, thing.colour, plain=True)} {_place(rng, thing)}",
        f"there is {view} behind {_a(noun)}",
    )
    return f"{_any(rng, said).capitalize()}."


def _counting(scene: Scene, rng: np.random.Generator) -> str:
    """Counts the things, or says where one of them is from another."""
    nouns = [_name(rng, thing, plain=True, texture=0.25, size=0.15, colour=0.9) for thing in scene.things]
    if len(nouns) == 1:
        where = _place(rng, scene.things[0])
        return _any(rng, (f"only one {nouns[0]} {where}", f"one {nouns[0]}", f"a single {nouns[0]} {where}"))
    if rng.random() < 0.3:
        number = _any(rng, NUMBERS[len(nouns)])
        return f"{number} {_any(rng, ('things', 'shapes', 'objects'))}: {_list([_a(noun) for noun in nouns])}"
    first, second = rng.permutation(len(nouns))[:2]
    relation = _relation(rng, scene.things[first], scene.things[second])
    subject = _any(rng, (f"the {nouns[first]}", _a(nouns[first])))
    return f"{subject} is {relation} the {'other ' if nouns[first] == nouns[second] else ''}{nouns[second]}"


def _relation(rng: np.random.Generator, thing: Thing, other: Thing) -> str:
    right, down = thing.x - other.x, thing.y - other.y
    if abs(right) > abs(down):
        return _any(rng, ("right of", "to the right of") if right > 0 else ("left of", "to the left of"))
    return _any(rng, ("below", "under", "beneath") if down > 0 else ("above", "over"))


def _name(rng: np.random.Generator, thing: Thing, plain: bool, texture: float, size: float, colour: float = 1.0) -> str:
    """The thing with its size, texture and colour, each mentioned with the given probability."""
    said = [
        _word(rng, value, plain)
        for value, chance in ((thing.size, size), (thing.texture, texture), (thing.colour, colour))
        if rng.random() < chance
    ]
    return _join([*said, _word(rng, thing.shape, plain)])


def _word(rng: np.random.Generator, value: str, plain: bool) -> str:
    return WORDS[value][0] if plain else _any(rng, WORDS[value][1:])


def _place(rng: np.random.Generator, thing: Thing) -> str:
    return _any(rng, PLACES[thing.row][thing.column])


def _any(rng: np.random.Generator, choices: Sequence[T]) -> T:
    return choices[int(rng.integers(len(choices)))]


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _join(words: list[str]) -> str:
    return " ".join(word for word in words if word)


def _list(nouns: list[str]) -> str:
    return " and ".join([", ".join(nouns[:-1]), nouns[-1]]) if len(nouns) > 1 else nouns[0]
