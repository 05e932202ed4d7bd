"""From predictions for tiles to predictions for images."""

import numpy as np


def vote_by_source(sources: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join the values of tiles (n, ...) by their source images (n,).

    Numbers are averaged; of labels the most frequent wins, the first in sorted order on a tie.

    Examples
    --------
    >>> import numpy as np
    >>> sources, winners = vote_by_source(np.array([0, 0, 0, 7]), np.array(["a", "b", "b", "a"]))
    >>> sources.tolist(), winners.tolist()
    ([0, 7], ['b', 'a'])
    """
    distinct, owner = np.unique(sources, return_inverse=True)
    if np.issubdtype(values.dtype, np.floating):
        totals = np.zeros((len(distinct), *values.shape[1:]))
        np.add.at(totals, owner, values)
        return distinct, totals / np.bincount(owner).reshape(-1, *[1] * (values.ndim - 1))
    classes, numbers = np.unique(values, return_inverse=True)
    votes = np.zeros((len(distinct), len(classes)), dtype=int)
    np.add.at(votes, (owner, numbers), 1)
    return distinct, classes[votes.argmax(axis=1)]
