"""The demo of a flow: an unchanged configuration of Flume's runs on the flights, and draws its graph.

Lines of flights are appended to a log file that rotates, while an agent tails it: ``spillable agent -n flights -f
flights.conf``. It stores the flights from JFK by carrier and month, and the others in two directories that share the
load. In the middle the agent is killed, and started again. At the end every line must be in one file, once. Exits 1
otherwise.

python -m demo.flume.run [--flights COUNT]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import spillable_stream as ss
from demo.flights import read_flights
from spillable_stream import flow

CONFIGURATION = Path(__file__).with_name("flights.conf")
AGENT = "flights"
STARTED = f"the agent {AGENT} has started".encode()
ROTATE_AT, KILL_AT = 0.5, 0.3  # of all flights
PIECE = 2_000  # lines
PIECE_SECONDS = 0.02
LOOK_SECONDS = 0.5
END_SECONDS = 120.0


def flight_lines(count: int | None) -> list[str]:
    """Return a line for each flight: time, carrier, airport, number and delay. No two are alike."""
    rows = read_flights()[:count]
    return [f"{row['time_hour']},{row['carrier']},{row['origin']},{i},{row['dep_delay']}" for i, row in enumerate(rows)]


def write_log(directory: Path, lines: list[str]) -> None:
    """Append the lines to a log file, piece by piece, and rotate it once."""
    log = directory / "departures.csv"
    rotate_at = int(len(lines) * ROTATE_AT)
    for start in range(0, len(lines), PIECE):
        if start <= rotate_at < start + PIECE and log.exists():
            log.rename(directory / "departures.csv.1")
        with log.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines[start : start + PIECE]))
        time.sleep(PIECE_SECONDS)


def start_agent(directory: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the agent in a process of its own; it logs to a file."""
    command = [sys.executable, "-m", "spillable_stream", "agent", "-n", AGENT, "-f", str(CONFIGURATION)]
    with log.open("wb") as output:
        return subprocess.Popen([*command, f"-Ddemo.dir={directory}"], stdout=output, stderr=output)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process with the block."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def stored(directory: Path) -> list[Path]:
    """Return the files that the sinks have written, the open ones included, and not the sinks' own notes."""
    found = (p for name in ("kennedy", "others") for p in sorted((directory / name).rglob("*")))
    return [p for p in found if p.is_file() and not p.name.startswith(".")]


def count_lines(directory: Path) -> int:
    """Return how many lines are in all files."""
    return sum(path.read_bytes().count(b"\n") for path in stored(directory))


def wait_until_started(agent: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until an agent has started.

    Then its sinks have cut what a killed one wrote and did not commit: until then, some lines of the files are still in
    the channels. And it takes a SIGTERM as its order to stop: one that is still starting dies of it.
    """
    while STARTED not in log.read_bytes():
        require_running(agent, log)
        time.sleep(LOOK_SECONDS)


def require_running(agent: subprocess.Popen[bytes], log: Path) -> None:
    """Exit if an agent has ended."""
    if agent.poll() is not None:
        raise SystemExit(f"the agent has ended with status {agent.returncode}; see {log}")


def wait_for(directory: Path, lines: int, agent: subprocess.Popen[bytes], log: Path) -> None:
    """Print how many lines are stored until so many are."""
    started = time.monotonic()
    while (found := count_lines(directory)) < lines:
        print(f"{time.monotonic() - started:6.1f} s  {found:>9,} of {lines:,} lines are stored", flush=True)
        require_running(agent, log)
        if time.monotonic() - started > END_SECONDS:
            raise SystemExit(f"{lines - found:,} lines are not stored after {END_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def wait_for_all(directory: Path, lines: int, agent: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until an agent that follows a killed one has stored what that one left."""
    wait_until_started(agent, log)
    wait_for(directory, lines, agent, log)


def verdict(directory: Path, lines: list[str]) -> bool:
    """Print what is where, and whether every line is there once."""
    found: Counter[str] = Counter()
    for path in stored(directory):
        found.update(path.read_text().splitlines())
    files = Counter(str(path.relative_to(directory)).split(os.sep)[0] for path in stored(directory))
    for name, count in files.items():
        print(f"  {name:<9} {count:>4} files")
    missing, twice = set(lines) - found.keys(), [line for line, count in found.items() if count > 1]
    strange = found.keys() - set(lines)
    if missing or twice or strange:
        print(f"WRONG: {len(missing):,} lines missing, {len(twice):,} more than once, {len(strange):,} unknown")
        return False
    print(f"OK: each of {len(lines):,} flights is in one file, once")
    return True


def main(count: int | None = None) -> int:
    """Run the demo in a temporary directory and return the exit status."""
    lines = flight_lines(count)
    with tempfile.TemporaryDirectory(prefix="spillable-flume-") as name:
        directory = Path(name)
        for place in ("log", "others/left", "others/right"):
            (directory / place).mkdir(parents=True)
        loaded = flow.load(CONFIGURATION, name=AGENT, system={"demo.dir": name})
        for finding in loaded.findings:
            print(finding)
        print(flow.Graph(loaded).text(), flush=True)
        writer = threading.Thread(target=write_log, args=(directory / "log", lines), daemon=True)
        writer.start()
        agent = start_agent(directory, log := directory / "agent-1.log")
        with ended(agent):
            wait_for(directory, int(len(lines) * KILL_AT), agent, log)
            agent.kill()
        print("SIGKILL: the agent is gone; another one is started", flush=True)
        agent = start_agent(directory, log := directory / "agent-2.log")
        with ended(agent):
            writer.join()
            wait_for_all(directory, len(lines), agent, log)
            agent.send_signal(signal.SIGTERM)
            if agent.wait(END_SECONDS) != 0:
                raise SystemExit(f"the agent ended with status {agent.returncode}")
        return 0 if verdict(directory, lines) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, help="how many flights; all by default")
    with ss.exit_on_sigterm():
        sys.exit(main(parser.parse_args().flights))
