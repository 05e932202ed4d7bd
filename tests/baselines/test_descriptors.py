"""Every descriptor against an independent count, number by number."""

import math
from itertools import product

import numpy as np
import pytest

from lmfcn.baselines.descriptors import DESCRIPTORS, GLCM_ANGLES, GLCM_DISTANCES, LENGTHS, glcm, lbp, pftas

TINY = np.array([[0, 0, 1, 3], [0, 2, 1, 1], [3, 3, 2, 0], [2, 1, 0, 0]], dtype=np.uint8) * 60


def counted_pairs(image, row_step, column_step):
    """Co-occurrence counts in both directions, as a dict of shares."""
    counts = {}
    height, width = image.shape
    for row, column in product(range(height), range(width)):
        other_row, other_column = row + row_step, column + column_step
        if 0 <= other_row < height and 0 <= other_column < width:
            pair = int(image[row, column]), int(image[other_row, other_column])
            for way in (pair, pair[::-1]):
                counts[way] = counts.get(way, 0) + 1
    total = sum(counts.values())
    return {pair: count / total for pair, count in counts.items()}


def entropy(shares):
    return -sum(share * math.log2(share) for share in shares if share > 0)


def haralick_by_hand(shares, n_levels=256):
    """The thirteen statistics from their definitions."""
    px = [sum(p for (i, _), p in shares.items() if i == level) for level in range(n_levels)]
    sums = [sum(p for (i, j), p in shares.items() if i + j == total) for total in range(2 * n_levels)]
    differences = [sum(p for (i, j), p in shares.items() if abs(i - j) == gap) for gap in range(n_levels)]
    mean = sum(i * p for (i, _), p in shares.items())
    variance = sum((i - mean) ** 2 * p for (i, _), p in shares.items())
    correlation = sum((i - mean) * (j - mean) * p for (i, j), p in shares.items()) / variance if variance else 1.0
    sum_average = sum(k * p for k, p in enumerate(sums))
    all_entropy, hx = entropy(shares.values()), entropy(px)
    hxy1 = -sum(p * math.log2(px[i] * px[j]) for (i, j), p in shares.items())
    hxy2 = entropy([a * b for a in px for b in px if a and b])
    information = (all_entropy - hxy1) / hx if hx else all_entropy - hxy1
    return [
        sum(p * p for p in shares.values()),
        sum((i - j) ** 2 * p for (i, j), p in shares.items()),
        correlation,
        variance,
        sum(p / (1 + (i - j) ** 2) for (i, j), p in shares.items()),
        sum_average,
        sum((k - sum_average) ** 2 * p for k, p in enumerate(sums)),
        entropy(sums),
        all_entropy,
        float(np.var(differences)),
        entropy(differences),
        information,
        math.sqrt(max(0.0, 1 - math.exp(-2 * (hxy2 - all_entropy)))),
    ]


STEPS = {0: (0, 1), 45: (1, 1), 90: (1, 0), 135: (1, -1)}  # angles turn from the right downwards


def glcm_by_hand(image, distances=GLCM_DISTANCES):
    matrices = []
    for distance in distances:
        for row, column in STEPS.values():
            # Diagonal neighbours lie on a circle of that radius, rounded to pixels.
            length = round(distance / math.sqrt(2)) if row and column else distance
            matrices.append(counted_pairs(image, row * length, column * length))
    pairs = {pair for shares in matrices for pair in shares}
    mean = {pair: sum(shares.get(pair, 0) for shares in matrices) / len(matrices) for pair in pairs}
    return np.concatenate([haralick_by_hand(shares) for shares in [*matrices, mean]])


def test_one_co_occurrence_matrix_by_hand():
    # Horizontal neighbours of the tiny image in units of 60: 00 01 13, 02 21 11, 33 32 20, 21 10 00.
    shares = counted_pairs(TINY // 60, 0, 1)
    expected = {(0, 0): 4, (0, 1): 2, (1, 0): 2, (1, 3): 1, (3, 1): 1, (0, 2): 2, (2, 0): 2, (2, 1): 2, (1, 2): 2}
    expected |= {(1, 1): 2, (3, 3): 2, (3, 2): 1, (2, 3): 1}
    assert {pair: round(24 * share) for pair, share in shares.items()} == expected
    # Angular second moment and contrast of that matrix, the first two values of the vector.
    values = glcm(TINY[..., None], distances=(1, 2))
    assert values[0] == pytest.approx(sum(count**2 for count in expected.values()) / 24**2)
    assert values[1] == pytest.approx(60**2 * (10 * 1**2 + 6 * 2**2) / 24)


def test_glcm_agrees_with_the_count(random):
    assert glcm(TINY[..., None], (1, 2)) == pytest.approx(glcm_by_hand(TINY, (1, 2)), rel=1e-6, abs=1e-8)
    for image in (random.integers(0, 256, (7, 6), dtype=np.uint8), np.kron(TINY, np.ones((2, 2), np.uint8))):
        assert glcm(image[..., None]) == pytest.approx(glcm_by_hand(image), rel=1e-6, abs=1e-8)
    assert len(GLCM_ANGLES) == 4


def uniform_patterns():
    """All darker; n lighter in a row, counter-clockwise from a neighbour r steps clockwise from the right; all."""
    order = [(0,) * 8]
    for n_light, start in product(range(1, 8), range(8)):
        order.append(tuple(1 if (place + start) % 8 < n_light else 0 for place in range(8)))
    return [*order, (1,) * 8]


def bits_around(image, row, column):
    """The eight neighbours at distance 1, counter-clockwise from the right, against the centre; zero outside."""
    height, width = image.shape

    def pixel(r, c):
        return float(image[r, c]) if 0 <= r < height and 0 <= c < width else 0.0

    bits = []
    for k in range(8):
        r, c = row - math.sin(2 * math.pi * k / 8), column + math.cos(2 * math.pi * k / 8)
        r, c = round(r, 5), round(c, 5)
        r0, c0 = math.floor(r), math.floor(c)
        dr, dc = r - r0, c - c0
        value = (1 - dr) * ((1 - dc) * pixel(r0, c0) + dc * pixel(r0, c0 + 1))
        value += dr * ((1 - dc) * pixel(r0 + 1, c0) + dc * pixel(r0 + 1, c0 + 1))
        bits.append(1 if value >= image[row, column] else 0)
    return tuple(bits)


@pytest.mark.parametrize("image", [TINY, np.full((4, 4), 7, np.uint8)], ids=["tiny", "constant"])
def test_lbp_agrees_with_the_count(image):
    counts = {}
    for row, column in product(range(4), range(4)):
        bits = bits_around(image, row, column)
        counts[bits] = counts.get(bits, 0) + 1
    values = lbp(image[..., None])
    assert values.sum() == pytest.approx(1)
    expected = [counts.get(bits, 0) for bits in uniform_patterns()]
    assert 16 * values[:58] == pytest.approx(expected)
    assert 16 * values[58] == pytest.approx(16 - sum(expected))


def otsu_by_hand(values):
    """The threshold after which the two parts have the largest variance between them."""
    best, threshold = -1.0, 0
    for level in range(256):
        low, high = [v for v in values if v <= level], [v for v in values if v > level]
        if low and high:
            between = len(low) * len(high) * (np.mean(low) - np.mean(high)) ** 2
            if between > best + 1e-9:
                best, threshold = between, level
    return threshold


def pftas_by_hand(image):
    """54 statistics of one channel."""
    image = image.astype(int)
    height, width = image.shape
    threshold = otsu_by_hand(image.ravel().tolist())
    above = image[image > threshold]
    mean, spread = above.mean(), above.std()
    light = [(image > mean - spread) & (image < mean + spread), image > mean - spread, image > mean]
    values = []
    for binary in [*light, *(~part for part in light)]:
        counts = [0] * 9
        for row, column in product(range(height), range(width)):
            if not binary[row, column]:
                near = [
                    # The border is mirrored.
                    binary[min(max(row + r, -row - r - 1), 2 * height - 1 - row - r)][
                        min(max(column + c, -column - c - 1), 2 * width - 1 - column - c)
                    ]
                    for r, c in product((-1, 0, 1), repeat=2)
                    if r or c
                ]
                counts[sum(map(bool, near))] += 1
        values += [count / max(1, sum(counts)) for count in counts]
    return values


def test_pftas_agrees_with_the_count(random):
    red = np.array([[12, 200, 7, 90], [31, 180, 44, 2], [250, 16, 160, 77], [8, 120, 215, 63]], dtype=np.uint8)
    green, blue = random.integers(0, 256, (2, 4, 4), dtype=np.uint8)
    expected = [value for channel in (red, green, blue) for value in pftas_by_hand(channel)]
    assert pftas(np.stack([red, green, blue], axis=2)) == pytest.approx(expected)
    assert pftas(red[..., None]) == pytest.approx(expected[:54] * 3)


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_lengths_and_images_of_any_kind(name, random):
    describe = DESCRIPTORS[name]
    for image in (
        random.integers(0, 256, (9, 13, 3), dtype=np.uint8),
        np.full((8, 8, 1), 255, np.uint8),
        np.zeros((8, 8, 3), np.uint8),
    ):
        before = image.copy()
        image.setflags(write=False)
        values = describe(image)
        assert values.shape == (LENGTHS[name],)
        assert np.isfinite(values).all()
        assert np.array_equal(image, before)
    assert LENGTHS == {"glcm": 169, "lbp": 59, "pftas": 162}


@pytest.mark.parametrize("name", ["glcm", "lbp"])
def test_colour_is_made_grey(name, random):
    grey = random.integers(0, 256, (9, 9, 1), dtype=np.uint8)
    assert np.array_equal(DESCRIPTORS[name](grey), DESCRIPTORS[name](np.repeat(grey, 3, axis=2)))
