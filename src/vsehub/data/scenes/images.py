"""Scenes, and their painting in 64 x 64 pixels."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

SIDE = 64
# Painted four times larger, then averaged down: smooth edges without an antialiasing library.
ZOOM = 4
CANVAS = SIDE * ZOOM
# Darkness of a shadow for each opacity of the body from 0 to 255.
SHADOW = [value * 3 // 10 for value in range(256)]

COLOURS = {
    "red": (214, 40, 40),
    "blue": (40, 90, 215),
    "yellow": (250, 214, 50),
    "green": (40, 150, 62),
    "orange": (245, 130, 32),
    "white": (245, 245, 245),
    "black": (32, 32, 36),
    "pink": (250, 140, 190),
    "purple": (125, 60, 180),
    "brown": (120, 72, 38),
}
RADII = {"small": 7.0, "medium": 10.5, "large": 15.0}
TEXTURES = ("plain", "striped", "dotted", "checked")
# Top and bottom colours; _decorate paints waves and spots on them.
BACKGROUNDS = {
    "sky": ((110, 180, 240), (205, 230, 250)),
    "grass": ((120, 185, 80), (70, 140, 50)),
    "sea": ((20, 120, 160), (10, 60, 110)),
    "sand": ((240, 220, 165), (215, 180, 115)),
    "night": ((12, 14, 45), (45, 40, 95)),
    "brick": ((165, 85, 65), (140, 65, 50)),
    "snow": ((215, 225, 238), (250, 252, 255)),
    "wall": ((206, 202, 196), (184, 180, 174)),
}
# Distance, height, colour and width of waves; number, least and greatest radius and colour of spots.
WAVES = {"sea": (34, 5, (150, 210, 225), 4), "sand": (52, 9, (205, 168, 105), 6)}
SPOTS: dict[str, list[tuple[int, float, float, tuple[int, int, int]]]] = {
    "sand": [(45, 1.5, 3.5, (180, 140, 85))],
    "night": [(35, 1.5, 4, (250, 245, 210))],
    "snow": [(40, 3, 6, (255, 255, 255)), (20, 2, 4, (175, 195, 220))],
}


def _arc(radius: float, start: float = 0.0, stop: float = 360.0, count: int = 48) -> np.ndarray:
    angles = np.radians(np.linspace(start, stop, count, endpoint=stop - start != 360) - 90)
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _outlines() -> dict[str, list[np.ndarray]]:
    """Unit contours around (0, 0), y downwards; a second contour is a hole."""
    star = np.stack([_arc(1.08, count=5), _arc(0.45, 36, 396, count=5)], axis=1).reshape(-1, 2)
    cross = [(-1, -3), (1, -3), (1, -1), (3, -1), (3, 1), (1, 1), (1, 3), (-1, 3), (-1, 1), (-3, 1), (-3, -1), (-1, -1)]
    t = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    heart = np.stack([16 * np.sin(t) ** 3, -13 * np.cos(t) + 5 * np.cos(2 * t) + 2 * np.cos(3 * t) + np.cos(4 * t)], 1)
    # The crescent is a disc bitten from the upper right by one of radius 0.79, which meets it at the two tips.
    bite = np.array((0.32, -0.32))
    crescent = np.concatenate([_arc(1, 95, 355), np.add(_arc(0.79, 329, 121), bite)])
    return {
        "circle": [_arc(0.95)],
        "square": [_arc(1.15, 45, 405, count=4)],
        "star": [star],
        "heart": [heart / 16],
        "triangle": [np.add(_arc(1.1, count=3), (0, 0.15))],
        "ring": [_arc(1), _arc(0.5)],
        "moon": [crescent],
        "cross": [np.array(cross) / 3],
        "diamond": [_arc(1.1, count=4) * (0.72, 1)],
        "hexagon": [_arc(1, 30, 390, count=6)],
    }


OUTLINES = _outlines()


@dataclass(frozen=True)
class Thing:
    """One object. column and row: 0, 1 or 2 from the left and from the top; x, y: its centre in pixels."""

    shape: str
    colour: str
    texture: str
    size: str
    column: int
    row: int
    x: float
    y: float


@dataclass(frozen=True)
class Scene:
    """A background and one to three things on it, in the order of painting."""

    background: str
    things: tuple[Thing, ...]


def render(scene: Scene, rng: np.random.Generator) -> np.ndarray:
    """The picture of a scene: (3, 64, 64) uint8, with random jitter of colours and grain."""
    top, bottom = (_jitter(rng, colour, 10) for colour in BACKGROUNDS[scene.background])
    column = np.linspace(top, bottom, CANVAS).astype(np.uint8)[:, None]
    canvas = Image.fromarray(column).resize((CANVAS, CANVAS), Image.Resampling.NEAREST)
    _decorate(ImageDraw.Draw(canvas), scene.background, rng)
    for thing in scene.things:
        _paint(canvas, thing, rng)
    pixels: np.ndarray = np.asarray(canvas.reduce(ZOOM), dtype=np.float32)
    pixels = pixels * rng.uniform(0.93, 1.05) + rng.normal(0, 4, pixels.shape[:2])[:, :, None]
    return pixels.clip(0, 255).astype(np.uint8).transpose(2, 0, 1)


def _paint(canvas: Image.Image, thing: Thing, rng: np.random.Generator) -> None:
    colour = np.array(_jitter(rng, COLOURS[thing.colour], 9))
    pattern_colour = colour + ((255 - colour) * 0.68 if colour.mean() < 150 else -colour * 0.5)
    turn = rng.uniform(-0.2, 0.2)
    rotation = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    # Only a tile around the thing is blended: the whole canvas would take five times as long.
    half = int((RADII[thing.size] + 4) * ZOOM)
    left, top = int(thing.x * ZOOM) - half, int(thing.y * ZOOM) - half
    body, edge = Image.new("L", (2 * half, 2 * half)), Image.new("L", (2 * half, 2 * half))
    fill = Image.new("RGB", body.size, _rgb(colour))
    for number, outline in enumerate(OUTLINES[thing.shape]):
        contour = [tuple(point) for point in (outline @ rotation * RADII[thing.size] * ZOOM + half).tolist()]
        ImageDraw.Draw(body).polygon(contour, fill=0 if number else 255)
        # Joints are slow to draw and show at sharp corners only.
        joint = "curve" if len(contour) < 20 else None
        ImageDraw.Draw(edge).line([*contour, contour[0], contour[1]], fill=255, width=5, joint=joint)
    if thing.texture != "plain":
        pattern = _pattern(thing.texture, 16 if thing.size == "small" else 24)
        fill.paste(_rgb(pattern_colour), mask=pattern.crop((0, 0, *fill.size)))
    # The shadow and the edge keep a blue disc visible on the sea and a red one on bricks.
    canvas.paste((0, 0, 0), (left + 5, top + 6), body.point(SHADOW))
    canvas.paste(fill, (left, top), body)
    canvas.paste(_rgb(colour * 0.5 if colour.mean() > 60 else colour + 70), (left, top), edge)


def _decorate(draw: ImageDraw.ImageDraw, background: str, rng: np.random.Generator) -> None:
    if background == "sky":
        for x, y, r in zip(*rng.uniform(0, CANVAS, (2, 4)), rng.uniform(14, 26, 4), strict=True):
            for step, tall in ((-1.1, 0.6 * r), (0, 0.9 * r), (1.1, 0.6 * r)):
                draw.ellipse((x + step * r - r, y - tall, x + step * r + r, y + r * 0.6), fill=(246, 250, 255))
    elif background == "grass":
        for x, y, lean, long in zip(
            *rng.uniform(0, CANVAS, (2, 80)), rng.uniform(-7, 7, 80), rng.uniform(9, 24, 80), strict=True
        ):
            draw.line((x, y, x + lean, y - long), fill=(45, 115, 35) if lean > 0 else (150, 210, 95), width=4)
    elif background == "brick":
        start = int(rng.integers(28))
        for course, y in enumerate(range(start - 28, CANVAS, 28)):
            draw.line((0, y, CANVAS, y), fill=(205, 185, 170), width=5)
            for x in range(start + 30 * (course % 2) - 60, CANVAS, 60):
                draw.line((x, y, x, y + 28), fill=(205, 185, 170), width=5)
    elif background == "snow":
        hill = rng.uniform(90, 150)
        draw.ellipse((-140 + hill, hill + 30, CANVAS + hill, CANVAS * 2), fill=(255, 255, 255), outline=(190, 205, 225))
    elif background == "wall":
        floor = rng.uniform(205, 225)
        draw.rectangle((0, floor, CANVAS, CANVAS), fill=(150, 125, 105))
        draw.rectangle((0, floor, CANVAS, floor + 10), fill=(235, 230, 232))
    elif background in WAVES:
        gap, height, colour, width = WAVES[background]
        across = np.linspace(0, CANVAS, 32)
        for base in range(int(rng.integers(gap)), CANVAS + gap, gap):
            line = base + height * np.sin(across / rng.uniform(11, 15) + rng.uniform(0, 6))
            draw.line(list(zip(across, line, strict=True)), fill=colour, width=width)
    for count, low, high, colour in SPOTS.get(background, ()):
        for x, y, r in zip(*rng.uniform(0, CANVAS, (2, count)), rng.uniform(low, high, count), strict=True):
            draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def _jitter(rng: np.random.Generator, colour: tuple[int, ...], spread: int) -> tuple[int, ...]:
    return _rgb(np.array(colour) + rng.integers(-spread, spread + 1, 3))


def _rgb(colour: np.ndarray) -> tuple[int, ...]:
    return tuple(int(channel) for channel in np.clip(colour, 0, 255))


@cache
def _pattern(texture: str, period: int) -> Image.Image:
    y, x = np.mgrid[:CANVAS, :CANVAS]
    marks = {
        "striped": (x + y) % period < period / 2,
        "dotted": np.hypot(x % period - period / 2, y % period - period / 2) < period * 0.32,
        "checked": (x // (period // 2) + y // (period // 2)) % 2 == 0,
    }
    return Image.fromarray(marks[texture].astype(np.uint8) * 255)
