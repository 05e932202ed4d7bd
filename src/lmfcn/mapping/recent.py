"""The tiles that were decoded last, as those who read beside them need them again."""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from lmfcn.inference.map_grid import Box


class RecentTiles:
    """Keeps decoded tiles up to a number of bytes, and the last one in any case; those longest unused go first.

    Parameters
    ----------
    most_bytes : int
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._tiles: OrderedDict[Box, np.ndarray] = OrderedDict()
        self._n_bytes = 0

    def get(self, tile: Box, decode: Callable[[Box], np.ndarray]) -> np.ndarray:
        """Return the pixels of a tile, decoded now or before; they must not be changed."""
        if tile in self._tiles:
            self._tiles.move_to_end(tile)
        else:
            pixels = decode(tile)
            while self._tiles and self._n_bytes + pixels.nbytes > self._most_bytes:
                self._n_bytes -= self._tiles.popitem(last=False)[1].nbytes
            self._tiles[tile] = pixels
            self._n_bytes += pixels.nbytes
        return self._tiles[tile]
