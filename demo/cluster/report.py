"""What the cluster's demo prints: the hosts, a line for each change, the kills, and whether each flight counts once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from demo.cluster.hosts import Host
from demo.progress import bar

__all__ = ["Report", "Row", "verdict"]

_QUIET_SECONDS = 3.0

Row = tuple[int, str, str]
"""A flight of the second channel: its number, its carrier, and the host that wrote it."""


class Report:
    """Prints what happens, with the time since it was created.

    Args:
        flights: how many there are.
    """

    def __init__(self, flights: int) -> None:
        self._flights = flights
        self._began = time.monotonic()
        self._shown, self._shown_at = (0, -1), self._began

    def hosts(self, hosts: Sequence[Host], roles: Sequence[str], store: str) -> None:
        """Print which hosts there are."""
        print(
            "three hosts on this machine, each with mounts, a network and processes of its own; they share no directory"
        )
        print("but the programs, read-only, and have a way to the object store and to each other\n")
        for host, role in zip(hosts, roles, strict=True):
            print(f"  {host.name:<7} {host.address:<13} {role}")
        print(f"  {'store':<7} {store}\n", flush=True)

    def legend(self) -> None:
        """Print what the columns mean, and their headings."""
        print(f"""
  put       flights that the producers have put into the first channel, in transactions
  taken     flights that the query has taken; it reports a micro-batch as done when it begins the next one
  counted   flights that the query has put into the second channel, of {self._flights:,}

     time       put     taken              counted""")

    def progress(self, put: int, taken: int, counted: int) -> None:
        """Print how far they are, if more is counted; what is put comes too often for a line each."""
        seen, now = (put, counted), time.monotonic()
        if seen != self._shown and (counted != self._shown[1] or now - self._shown_at > _QUIET_SECONDS):
            self._shown, self._shown_at = seen, now
            self.event(f"{put:>8,}  {taken:>8,}     {bar(counted, self._flights)} {counted:>8,}")

    def event(self, text: str) -> None:
        """Print something that was done."""
        print(f"  {time.monotonic() - self._began:5.1f} s  {text}", flush=True)


def verdict(expected: Sequence[str], rows: Iterable[Row]) -> bool:
    """Print the counts and whether each flight is there exactly once.

    Args:
        expected: the carrier of each flight of the data set, by number.
        rows: what the second channel holds.
    """
    times: Counter[int] = Counter()
    carriers: Counter[str] = Counter()
    hosts: Counter[str] = Counter()
    for number, carrier, host in rows:
        times[number] += 1
        carriers[carrier] += 1
        hosts[host] += 1
    data_set = Counter(expected)
    print("\n  carrier   in the data set    counted")
    for carrier in sorted({*data_set, *carriers}, key=lambda name: -data_set[name]):
        wrong = "" if data_set[carrier] == carriers[carrier] else "   WRONG"
        print(f"  {carrier:<7} {data_set[carrier]:>17,}  {carriers[carrier]:>9,}{wrong}")
    print(f"\n  counted by {', '.join(f'{host}: {count:,}' for host, count in sorted(hosts.items())) or 'nobody'}")
    missing = [number for number in range(len(expected)) if number not in times]
    doubled = [number for number, count in times.items() if count > 1]
    strays = [number for number in times if not 0 <= number < len(expected)]
    if missing or doubled or strays or data_set != carriers:
        print(
            f"WRONG: {len(missing):,} flights are missing, {len(doubled):,} are counted more than once, "
            f"{len(strays):,} were never put; the first: {[*missing[:3], *doubled[:3], *strays[:3]]}"
        )
        return False
    print(f"OK: each of the {len(expected):,} flights is counted once, and each carrier has the data set's count")
    return True
