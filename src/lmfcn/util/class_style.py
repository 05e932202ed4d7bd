"""Colours and marks of classes: the same in reports, on the page of `lmfcn serve`, and in maps."""

import colorsys

CLASS_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
"""Colours of Okabe and Ito, which colour-blind readers can tell apart; black is left out, as dark pages hide it."""

CLASS_MARKS = ("circle", "square", "triangle", "diamond", "triangle-down", "plus")
"""One less than there are colours, so that pairs of colour and mark repeat only after 42 classes."""

_GOLDEN = 0.618034


def class_color(number: int) -> str:
    """Return the colour of a class by its number; more than seven classes get colours that are only told apart by most.

    Examples
    --------
    >>> class_color(1), class_mark(1)
    ('#D55E00', 'square')
    """
    if number < len(CLASS_COLORS):
        return CLASS_COLORS[number]
    brightness = (0.95, 0.7, 0.5)[number % 3]
    rgb = colorsys.hsv_to_rgb(number * _GOLDEN % 1, 0.65, brightness)
    return "#" + "".join(f"{round(255 * part):02X}" for part in rgb)


def class_mark(number: int) -> str:
    """Return the name of the mark of a class."""
    return CLASS_MARKS[number % len(CLASS_MARKS)]
