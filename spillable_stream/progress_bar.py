"""A progress bar for whatever has an argument ``progress``, on a terminal and in a notebook."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from spillable_stream.progress import Progress

__all__ = ["ProgressBar"]


class ProgressBar:
    """A progress bar, by tqdm.

    ::

        with ss.ProgressBar() as bar:
            report = ss.verify("/data/orders", progress=bar)

    It appears with the first progress, and stays as it is when the block ends.

    Args:
        options: options of tqdm, such as ``file`` or ``leave``.

    Raises:
        ImportError: tqdm is not installed.
    """

    def __init__(self, **options: Any) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError as e:
            raise ImportError("a progress bar needs tqdm: pip install 'spillable-stream[notebook]'") from e
        self._tqdm = tqdm
        self._options = options
        self._bar: Any = None

    def __call__(self, progress: Progress) -> None:
        """Show how far the work is."""
        if self._bar is None or self._bar.desc.rstrip(": ") != progress.what:
            self.close()
            unit = "B" if progress.unit == "bytes" else f" {progress.unit}"
            scales = progress.unit == "bytes"
            shown = {
                "desc": progress.what,
                "unit": unit,
                "unit_scale": scales,
                "unit_divisor": 1024 if scales else 1000,
            }
            self._bar = self._tqdm(total=progress.total, **{**shown, **self._options})
        self._bar.total = progress.total
        self._bar.n = progress.done
        self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
