"""Damage to the content of files, as disks, networks and hands do it."""

import random
from collections.abc import Callable

_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Return the content after one to four kinds of damage."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        content = chance.choice(_KINDS)(content, chance)
    return content


def change_digit(content: bytes) -> bytes:
    """Change a digit behind the middle, which leaves most texts readable; without one, the last byte."""
    places = [place for place in range(len(content) // 2, len(content)) if content[place : place + 1].isdigit()]
    place = places[len(places) // 2] if places else len(content) - 1
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: _place(content, chance)]


def change_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 2, 8))):
        if changed:
            changed[_place(changed, chance)] = chance.randrange(256)
    return bytes(changed)


def flip_bit(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[_place(changed, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def set_extreme(content: bytes, chance: random.Random) -> bytes:
    """Put the smallest or largest number where a size may be."""
    place, length = _place(content, chance), chance.choice((1, 2, 4, 8))
    return content[:place] + bytes([chance.choice(_EXTREMES)]) * length + content[place + length :]


def remove_part(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + content[place + chance.randint(1, 64) :]


def repeat_part(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    part = content[place : place + chance.randint(1, 64)]
    return content[:place] + part * chance.randint(2, 5) + content[place + len(part) :]


def insert_noise(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + chance.randbytes(chance.randint(1, 32)) + content[place:]


def clear_tail(content: bytes, chance: random.Random) -> bytes:
    """Zeros from somewhere to the end, as file systems leave after a loss of power."""
    place = _place(content, chance)
    return content[:place] + bytes(len(content) - place)


_KINDS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    truncate,
    change_bytes,
    flip_bit,
    set_extreme,
    remove_part,
    repeat_part,
    insert_noise,
    clear_tail,
)


def _place(content: bytes | bytearray, chance: random.Random) -> int:
    """Return a place, in every second case within the first bytes, where the sizes are."""
    return chance.randrange(max(1, min(len(content), 256 if chance.random() < 0.5 else len(content))))
