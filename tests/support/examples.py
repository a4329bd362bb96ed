"""How many examples a property is tried with: all in `make crash`, a fifth in CI, and a twentieth in `make test`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

__all__ = ["examples", "register_profiles"]

_PROFILES = {"quick": 5, "ci": 20, "full": 100}


def register_profiles() -> None:
    """Register the profiles "quick", which counts unless pytest is told otherwise, "ci" and "full"."""
    # It would take some examples from the constants of the modules that happen to be loaded: others in each process.
    providers._get_local_constants = lambda: providers._local_constants
    for name, count in _PROFILES.items():
        # The same examples in every run, and no verdict about time.
        settings.register_profile(
            name, max_examples=count, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
        )
    settings.load_profile("quick")


def examples(full: int) -> int:
    """Return how many of a property's examples the profile has."""
    return max(1, full * settings().max_examples // _PROFILES["full"])
