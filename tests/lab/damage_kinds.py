"""The damages: cuts, flipped bits, bursts, zeroed sectors, frames and files that are swapped, doubled or gone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import combinations

from tests.lab.damage_image import Image
from tests.lab.damage_lab import Damage

__all__ = [
    "bit_flips",
    "bursts",
    "cuts",
    "files_exchanged",
    "frames_exchanged",
    "noise",
    "random_flips",
    "sectors",
    "stale",
    "tails_glued",
]


def cuts(image: Image, name: str, harmless: bool = False) -> Iterator[Damage]:
    """Cut a file at every byte, and remove it."""
    data = image.files[name]
    for size in range(len(data)):
        yield Damage(f"{name} cut at {size}", {name: data[:size]}, harmless)
    yield Damage(f"{name} removed", {name: None}, harmless)


def bit_flips(image: Image, name: str, start: int, end: int, harmless: bool = False, step: int = 1) -> Iterator[Damage]:
    """Flip every bit of a part of a file."""
    for bit in range(start * 8, end * 8, step):
        yield _flipped(image, name, [bit], harmless)


def _flipped(image: Image, name: str, bits: list[int], harmless: bool = False) -> Damage:
    data = bytearray(image.files[name])
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    places = ", ".join(f"{bit // 8}.{bit % 8}" for bit in bits[:4])
    return Damage(f"{name} with bits {places} flipped", {name: bytes(data)}, harmless)


def random_flips(image: Image, names: list[str], count: int, seed: int) -> Iterator[Damage]:
    """Flip single bits anywhere."""
    rng = random.Random(seed)
    weights = [len(image.files[name]) for name in names]
    for _ in range(count):
        (name,) = rng.choices(names, weights)
        yield _flipped(image, name, [rng.randrange(len(image.files[name]) * 8)])


def bursts(image: Image, names: list[str], count: int, seed: int) -> Iterator[Damage]:
    """Flip 2 to 16 bits that lie within 32."""
    rng = random.Random(seed)
    weights = [len(image.files[name]) for name in names]
    for _ in range(count):
        (name,) = rng.choices(names, weights)
        at = rng.randrange(max(1, len(image.files[name]) * 8 - 32))
        yield _flipped(image, name, sorted(rng.sample(range(at, at + 32), rng.randint(2, 16))))


def sectors(image: Image, name: str, size: int) -> Iterator[Damage]:
    """Fill every sector with zeros."""
    data = image.files[name]
    for start in range(0, len(data), size):
        end = min(start + size, len(data))
        zeroed = data[:start] + bytes(end - start) + data[end:]
        yield Damage(f"{name} with zeros from {start} to {end}", {name: zeroed})


def noise(image: Image, name: str, size: int, seed: int) -> Iterator[Damage]:
    """Fill every sector with noise."""
    data, rng = image.files[name], random.Random(seed)
    for start in range(0, len(data), size):
        end = min(start + size, len(data))
        noisy = data[:start] + rng.randbytes(end - start) + data[end:]
        yield Damage(f"{name} with noise from {start} to {end} (seed {seed})", {name: noisy})


def frames_exchanged(image: Image, name: str) -> Iterator[Damage]:
    """Double, delete and swap frames, and runs of up to three of them."""
    data, frames = image.files[name], image.frames(name)
    places = [f.offset for f in frames] + [frames[-1].end]

    def damage(what: str, changed: bytes, behind: bool = False) -> Damage:
        return Damage(f"{name} with the frames from {a} to {b} {what}", {name: changed}, natural=False, behind=behind)

    for length in (1, 2, 3):
        for i in range(len(frames) - length + 1):
            a, b = places[i], places[i + length]
            yield damage("deleted", data[:a] + data[b:])
            yield damage("doubled", data[:b] + data[a:b] + data[b:])
            yield damage("once more at the end", data[: places[-1]] + data[a:b], behind=name == image.newest)
            for j in range(i + length, min(i + length + 3, len(frames) - length + 1)):
                c, d = places[j], places[j + length]
                swapped = data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]
                yield damage(f"swapped with those from {c} to {d}", swapped)


def files_exchanged(image: Image, names: list[str]) -> Iterator[Damage]:
    """Remove files, swap them, and put one in place of another."""
    for name in names:
        yield Damage(f"{name} removed", {name: None})
        yield Damage(f"{name} empty", {name: b""})
    for one, other in combinations(names, 2):
        first, second = image.files[one], image.files[other]
        yield Damage(f"{one} and {other} swapped", {one: second, other: first}, natural=False)
        yield Damage(f"{one} in place of {other}", {other: first}, natural=False)
        yield Damage(f"{other} in place of {one}", {one: second}, natural=False)


def tails_glued(image: Image, names: list[str]) -> Iterator[Damage]:
    """Glue what other files hold, and what the newest held earlier, behind the newest data file."""
    data = image.files[image.newest]
    for name in names:
        frames = image.frames(name)
        for frame in frames:
            tail = image.files[name][frame.offset :]
            yield Damage(f"{name} from {frame.offset} behind {image.newest}", {image.newest: data + tail}, behind=True)


def stale(image: Image, older: Mapping[str, bytes], names: list[str]) -> Iterator[Damage]:
    """Put back single files as they were earlier, or as another channel has them."""
    for name in names:
        if name in older and older[name] != image.files[name]:
            yield Damage(f"another {name}", {name: older[name]}, natural=False)
