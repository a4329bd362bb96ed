"""The few calls that every product is used by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

__all__ = ["Store"]


class Store(ABC):
    """A product's queue. It is created anew, or opened, by its constructor.

    Attributes:
        puts_singly: whether the product has no call that puts several bodies: `put` calls it for each.
        takes_singly: the same of `take`.
    """

    puts_singly: ClassVar[bool] = False
    takes_singly: ClassVar[bool] = False

    @abstractmethod
    def put(self, bodies: list[bytes]) -> int:
        """Return once the product says that the bodies are stored: the first one's ID, or 0."""

    @abstractmethod
    def take(self, count: int) -> list[bytes]:
        """Return the oldest bodies, up to so many, once the product says that they are taken."""

    @abstractmethod
    def read(self) -> Iterator[bytes]:
        """Yield all that is there, the oldest first; it may be taken by that."""

    def reported(self) -> Sequence[tuple[int, int]]:
        """Return the IDs that the product itself names as lost, as ranges of first and last."""
        return ()

    def close(self) -> None:  # noqa: B027 -- most have nothing that outlives the process
        """End what the process would leave behind."""
