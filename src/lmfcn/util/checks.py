"""Checks of single parameters; the error says what was expected and what was given."""

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any


def check_class_weight(class_weight: Any) -> None:
    """Refuse anything but "auto", "balanced", None, or positive weights by label."""
    if isinstance(class_weight, Mapping):
        for weight in class_weight.values():
            check_positive("class_weight", weight)
    else:
        check_choice("class_weight", class_weight, ("auto", "balanced", None))


def check_jobs(n_jobs: Any) -> None:
    """Refuse anything but None or a whole number other than 0."""
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise ValueError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}.")


def check_integer(name: str, value: Any, smallest: int) -> None:
    """Refuse anything but a whole number of at least `smallest`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}.")
    if int(value) < smallest:
        raise ValueError(f"{name} must be at least {smallest}, got {value}.")


def check_widths(widths: Any) -> None:
    """Refuse anything but a sequence of numbers of filters."""
    if not isinstance(widths, Sequence) or isinstance(widths, str):
        raise ValueError(f"widths must be a sequence of whole numbers such as (64, 128), got {widths!r}.")
    for width in widths:
        check_integer("widths", width, smallest=1)


def check_positive(name: str, value: Any, *, zero_allowed: bool = False) -> None:
    """Refuse anything but a finite number above 0 (or 0 itself, if allowed)."""
    bound = "at least 0" if zero_allowed else "greater than 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number {bound}, got {value!r}.")
    if not (0 < float(value) < float("inf") or (zero_allowed and value == 0)):
        raise ValueError(f"{name} must be {bound} and finite, got {value}.")


def check_fraction(name: str, value: Any) -> None:
    """Refuse anything but a number from 0 up to, but not including, 1."""
    check_positive(name, value, zero_allowed=True)
    if value >= 1:
        raise ValueError(f"{name} must be less than 1, got {value}.")


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Refuse anything that is not one of `choices`."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
