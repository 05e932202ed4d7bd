"""Randomness from an explicit source; the global generators of NumPy and torch are never touched."""

import numpy as np

RandomState = None | int | np.random.Generator | np.random.RandomState


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a generator from a seed, another generator, or fresh entropy for None.

    Examples
    --------
    >>> int(as_generator(0).integers(100)) == int(as_generator(0).integers(100))
    True
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state must be None, a non-negative int or a NumPy generator, got {random_state!r}."
        ) from error
