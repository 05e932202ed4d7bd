"""Means and standard deviations of feature maps, as means of maps, so that they can be explained place by place."""

from collections.abc import Callable

from torch import Tensor

_LEAST_VARIANCE = 1e-6
"""Added to a variance, which is about 1 for most maps. Exporters to ONNX drop an addend of 1e-8."""


def standard_deviation(variances: Tensor) -> Tensor:
    """Return the square root of variances, a little more where they are zero: it is divided by."""
    return (variances.clamp(min=0) + _LEAST_VARIANCE).sqrt()


def deviation_maps(maps: Tensor, average: Callable[[Tensor], Tensor]) -> Tensor:
    """Return maps (b, c, h, w) whose means are the standard deviations of `maps`.

    A value is the squared difference from the mean, divided by the standard deviation. So an explanation can tell where
    in the image a standard deviation comes from.

    Parameters
    ----------
    maps : Tensor (b, c, h, w)
    average : callable
        Returns the means (b, c) of maps.

    Examples
    --------
    >>> import torch
    >>> deviation_maps(torch.tensor([[[[1.0, 3.0]]]]), lambda maps: maps.mean(dim=(2, 3))).round(decimals=3)
    tensor([[[[1., 1.]]]])
    """
    squares = (maps - average(maps)[:, :, None, None]).square()
    return squares / standard_deviation(average(squares))[:, :, None, None]
