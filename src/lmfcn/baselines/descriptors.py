"""Handcrafted texture descriptors: co-occurrence statistics, local binary patterns, threshold adjacency statistics.

Each turns one 8-bit grey or RGB image into a vector of fixed length, whatever its size.
"""

from collections.abc import Callable, Sequence

import numpy as np

from lmfcn.data.framing import to_color
from lmfcn.extras import needs

GLCM_DISTANCES = (1, 2, 4)
GLCM_ANGLES = (0.0, np.pi / 4, np.pi / 2, 3 * np.pi / 4)
_N_LBP = 59
_GREY_LEVELS = 256


def glcm(image: np.ndarray, distances: Sequence[int] = GLCM_DISTANCES) -> np.ndarray:
    """Return 169 statistics of grey-level co-occurrence matrices (GLCM).

    There are 13 matrices of 256 grey levels, each symmetric and normalised: one for each of the distances 1, 2 and 4
    and the directions right, right and down, down, left and down, in this order with the direction running faster
    (diagonal steps rounded to pixels: 1, 1 and 3 each way), and the mean of these twelve. Each has the 13 statistics
    of Haralick, in mahotas' order: angular second moment, contrast, correlation, variance, inverse difference moment,
    sum average, sum variance, sum entropy, entropy, difference variance, difference entropy, and two measures of
    correlation by information. Values 13 m to 13 m + 12 are those of matrix m. Colour images are made grey.

    Parameters
    ----------
    image : array of uint8 (height, width, 1 or 3)
        With sides of more pixels than the largest distance.
    distances : sequence of int
        Other ones give vectors of another length, 13 (4 n + 1).
    """
    graycomatrix = needs("skimage.feature", "textures").graycomatrix
    haralick = needs("mahotas.features.texture", "textures").haralick_features
    counts = graycomatrix(_grey(image), distances, GLCM_ANGLES, _GREY_LEVELS, symmetric=True, normed=True)
    matrices = np.ascontiguousarray(counts.reshape(_GREY_LEVELS, _GREY_LEVELS, -1).transpose(2, 0, 1))
    return haralick([*matrices, matrices.mean(axis=0)]).ravel()


def lbp(image: np.ndarray) -> np.ndarray:
    """Return the shares of the 59 uniform local binary patterns (LBP) of 8 neighbours at distance 1.

    A neighbour counts as light if it is at least as light as the centre; outside the image all is dark. Value 0 is
    the share of pixels with dark neighbours only, value 1 + 8 (n - 1) + r of those with n light neighbours in a row,
    counter-clockwise from one that lies r eighths of a turn clockwise from the right, value 57 of those with light
    neighbours only, and value 58 of all others. Colour images are made grey.

    Parameters
    ----------
    image : array of uint8 (height, width, 1 or 3)
    """
    local_binary_pattern = needs("skimage.feature", "textures").local_binary_pattern
    patterns = local_binary_pattern(_grey(image), P=8, R=1, method="nri_uniform")
    return np.bincount(patterns.astype(int).ravel(), minlength=_N_LBP) / patterns.size


def pftas(image: np.ndarray) -> np.ndarray:
    """Return 162 parameter-free threshold adjacency statistics (PFTAS): 54 each of red, green and blue.

    Otsu's threshold, the mean of the pixels above it and their standard deviation make three binary images of a
    channel; each gives the shares of its dark pixels with 0 to 8 light neighbours, then the three negatives do. Grey
    images count as three equal channels.

    Parameters
    ----------
    image : array of uint8 (height, width, 1 or 3)
    """
    one_channel = needs("mahotas.features", "textures").pftas
    # mahotas wants memory of its own that it may write to.
    values = [one_channel(np.array(channel, order="C")) for channel in np.moveaxis(image, 2, 0)]
    return np.concatenate(values * 3 if len(values) == 1 else values)


Descriptor = Callable[[np.ndarray], np.ndarray]
DESCRIPTORS: dict[str, Descriptor] = {"glcm": glcm, "lbp": lbp, "pftas": pftas}
LENGTHS = {"glcm": 169, "lbp": _N_LBP, "pftas": 162}
_SMALLEST_SIDE = {"glcm": max(GLCM_DISTANCES) + 1, "lbp": 3, "pftas": 3}


def check_describable(name: str, channels: int, pixels: str, smallest_side: int) -> None:
    """Refuse images for which a descriptor is not defined."""
    if pixels != "uint8" or channels not in (1, 3):
        raise ValueError(
            f"{name.upper()} is defined for 8-bit grey or RGB images, got {channels} channels of {pixels} pixels;"
            " convert the images, or compare with methods that take any pixels, such as CNNClassifier."
        )
    if smallest_side < _SMALLEST_SIDE[name]:
        raise ValueError(
            f"{name.upper()} needs images of at least {_SMALLEST_SIDE[name]} pixels a side, got {smallest_side}."
        )


def _grey(image: np.ndarray) -> np.ndarray:
    return np.array(to_color(image, "grey")[:, :, 0])  # a copy: scikit-image wants memory that it may write to
