"""Resolutions of one image in one file: which there are, and which one is wanted."""

from pathlib import Path


def check_level(path: Path, level: int, n_levels: int) -> None:
    """Refuse a level that a file does not have."""
    if not 0 <= level < n_levels:
        there = "one level, 0" if n_levels == 1 else f"{n_levels} levels, 0 (the finest) to {n_levels - 1}"
        raise ValueError(f"{path} has {there}, got {level}.")


def level_for(path: Path, widths: list[int], micrometres: float | None, wanted: float) -> tuple[int, float]:
    """Return the coarsest level with pixels no larger than `wanted` micrometres, and the scale that remains.

    Parameters
    ----------
    path : Path
    widths : list of int
        Of all levels in pixels, the finest first.
    micrometres : float or None
        Side of a pixel of the finest level.
    wanted : float

    Examples
    --------
    >>> level_for(Path("a.svs"), [4000, 1000, 250], 0.25, 0.5)
    (0, 0.5)
    >>> level_for(Path("a.svs"), [4000, 1000, 250], 0.25, 1.0)
    (1, 1.0)
    """
    if wanted <= 0:
        raise ValueError(f"resolution must be a positive number of micrometres, got {wanted}.")
    if micrometres is None:
        raise ValueError(f"{path} does not say how large its pixels are; choose a level or a scale instead.")
    sides = [micrometres * widths[0] / width for width in widths]
    fine_enough = [level for level, side in enumerate(sides) if side <= wanted * 1.001]
    level = max(fine_enough, default=0)
    scale = sides[level] / wanted
    return level, 1.0 if abs(scale - 1) < 1e-3 else scale
