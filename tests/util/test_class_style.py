import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from lmfcn.explain.gallery import Gallery
from lmfcn.maps.outputs import make_legend
from lmfcn.report.style import class_style
from lmfcn.serve.predictions import describe_gallery
from lmfcn.util.class_style import CLASS_COLORS, CLASS_MARKS, class_color, class_mark

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISIONS = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def lab(color, vision):
    """Return L*, a*, b* (3,) of a colour as somebody sees it."""
    values = np.array(to_rgb(color))
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(vision) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
def test_colour_blind_people_tell_the_first_classes_apart(vision):
    seen = [lab(color, VISIONS[vision]) for color in CLASS_COLORS]
    # A difference of 2.3 is just noticeable.
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 15


def test_pairs_of_colour_and_mark_are_unique():
    pairs = {(CLASS_COLORS[number % len(CLASS_COLORS)], class_mark(number)) for number in range(42)}
    assert len(pairs) == 42
    assert len({class_color(number) for number in range(42)}) == 42
    assert class_mark(len(CLASS_MARKS)) == CLASS_MARKS[0]


def test_report_page_and_map_agree():
    classes = [f"class {number}" for number in range(12)]
    gallery = Gallery("", [], classes, np.zeros(0, int), np.zeros((2, 2)), np.zeros(0, int), [])
    page = describe_gallery(gallery, "0" * 64)
    in_map = make_legend(np.array(classes)).colours
    for number in range(12):
        color = class_style(number)[0]
        assert page.colors[number] == color
        assert in_map[number].tolist() == [round(255 * part) for part in to_rgb(color)]
    assert page.marks == [class_mark(number) for number in range(12)]
