"""Build the wheel and the sdist, check them, and run the README with the wheel in an empty environment.

python scripts/release.py: what it leaves in dist/ can be uploaded with ``twine upload dist/*``. It needs what is pinned
in requirements-dev.txt, and Java for the Spark of the README.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PACKAGES = {"spillable_stream", "pyspark_spillable"}


class ReleaseError(Exception):
    """What keeps these files from being released."""


def main() -> int:
    """Build and check; return the exit status."""
    try:
        check_changelog()
        build()
        wheel, sdist = check_contents()
        run_readme(wheel)
    except (ReleaseError, subprocess.CalledProcessError) as e:
        print(f"not released: {e}", file=sys.stderr)
        return 1
    print(f"{wheel.name} and {sdist.name} in dist/ are good; upload them with: twine upload dist/*")
    return 0


def project() -> dict[str, str]:
    """Return what pyproject.toml says of the project."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]  # type: ignore[no-any-return]


def check_changelog() -> None:
    """Check that the changelog has the version, with its day."""
    version = project()["version"]
    if not re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        raise ReleaseError(f"CHANGELOG.md has no heading '## {version} - YYYY-MM-DD'; write it, or change the version")


def build() -> None:
    """Build both, with the tools that are pinned, and let twine check what a registry shows of them."""
    for left in (DIST, ROOT / "build"):
        shutil.rmtree(left, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT))
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))


def check_contents() -> tuple[Path, Path]:
    """Check that the files have all that users need, and nothing else; return the wheel and the sdist."""
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    require(wheel, names, "spillable_stream/py.typed", f"{info(wheel)}/licenses/LICENSE")
    refuse(wheel, {name for name in names if name.split("/")[0] not in {*PACKAGES, info(wheel)}})
    modules = {str(p.relative_to(ROOT)) for package in PACKAGES for p in (ROOT / package).rglob("*.py")}
    require(wheel, names, *modules)
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    require(
        sdist, inside, "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "spillable_stream/py.typed", *modules
    )
    refuse(sdist, {name for name in inside if name.startswith(("tests", "benchmarks", "docs", ".")) and name != "."})
    return wheel, sdist


def info(wheel: Path) -> str:
    """Return the name of the folder in which a wheel says what it is."""
    return "-".join(wheel.name.split("-")[:2]) + ".dist-info"


def require(archive: Path, names: set[str], *needed: str) -> None:
    """Check that an archive has some files."""
    if missing := sorted(set(needed) - names):
        raise ReleaseError(f"{archive.name} lacks {', '.join(missing)}")


def refuse(archive: Path, names: set[str]) -> None:
    """Check that there is nothing that an archive must not have."""
    if names:
        raise ReleaseError(f"{archive.name} has what users don't need: {', '.join(sorted(names)[:5])}")


def run_readme(wheel: Path) -> None:
    """Install the wheel in an empty environment and run the README's Python there, far from this directory."""
    with tempfile.TemporaryDirectory(prefix="spillable-release-") as place:
        python = Path(place) / "venv" / "bin" / "python"
        run(sys.executable, "-m", "venv", str(python.parents[1]))
        pins = ["-c", str(ROOT / "requirements-dev.txt")]
        run(str(python), "-m", "pip", "install", "-q", *pins, f"{wheel}[spark]")
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
        program = Path(place) / "readme.py"
        where = f'import spillable_stream\nassert spillable_stream.__file__.startswith("{place}"), spillable_stream\n'
        program.write_text(where + "\n".join(blocks))
        environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        run(str(python), str(program), cwd=place, env={**environment, "PYSPARK_PYTHON": str(python)})
        run(str(python.with_name("spillable")), "--help", cwd=place, env=environment, stdout=subprocess.DEVNULL)


def run(*command: str, **options: object) -> None:
    """Run a program, which must succeed."""
    print("$", *command, flush=True)
    subprocess.run(command, check=True, **options)  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
