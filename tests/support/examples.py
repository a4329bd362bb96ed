"""How many examples a property is tried with: all in `make test-rest`, a tenth of them in `make test`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["examples", "register_profiles"]

_FULL, _QUICK = 100, 10


def register_profiles() -> None:
    """Register the profiles "quick", which counts unless pytest is told otherwise, and "full"."""
    for name, count in (("quick", _QUICK), ("full", _FULL)):
        # The same examples in every run, and no verdict about time.
        settings.register_profile(
            name, max_examples=count, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
        )
    settings.load_profile("quick")


def examples(full: int) -> int:
    """Return how many of a property's examples the profile has."""
    return max(1, full * settings().max_examples // _FULL)
