"""Find phrases that read as translated, in pages, the changelog, messages, docstrings, comments, and names of tests.

docs/contributing.md has the style. Code, in blocks and in lines, is left out.

Usage: ``python scripts/check_english.py``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

_SENTENCE = r"(?:^|\A|(?<=[.;:?!|]\s)|(?<=[.;:]\n)|(?<=\n\n)|(?<=[-*]\s))"
_THINGS = r"(?:channel|checkpoint|group|file|segment|slot|backup|bucket)s?|director(?:y|ies)"
_PATTERNS = {
    r"\b(?:go|goes|going|went|gone)\s+on\b(?!\s+(?:disk|top)\b)": "continue, resume",
    r"(?<!each )(?<!none )(?<!some )(?<!one )(?<!all )(?<!both )\bof\s+which\b": "whose; or name the thing again",
    r"\b(?:is|are|was|were|be|been)\s+had\b": "acquired, obtained; or an active verb",
    r"\b(?:see|sees|look|looks|looked|looking)\s+whether\b": "check whether",
    r"\bholds?\b[^.;]{1,60}\bfor\s+(?:more\s+than\b|X\s+s\b)": "has held",  # X is a value in a message
    r"\b(?:checkpoint|copy|copies|backup)s?\s+(?:was|were)\s+made\s+of\b": "needs; created from",
    r"\bas\s+of\b": "like that of, as in",
    r"\bthe\s+other\s+way\s+round\b": "in reverse, vice versa",
    r"(?-i:^Who|(?<=[.;:?!|]\s)Who|(?<=[.;:]\s)who)(?:\s+[a-z]+)+\b(?![^.|]*\?)": (
        "bare 'who': a process that, the reader who"
    ),
    r"\b(?:for|by|to|from|with|than|as)\s+who\b": "bare 'who': whoever, anyone who, a process that",
    rf"{_SENTENCE}(?-i:What)\s+(?:was|were|is|can|can't|may|comes?|came|goes|else|only|has|had|lies|fits|did|does|survives|stands)\b"
    r"(?![^.|]*\?)": "bare 'what' as a subject: name the thing",
    r"\bfor\s+ever\b": "forever",
    r"\ball\s+the\s+same\b": "anyway, still",
    r"\b(?:is|are)\s+to\s+be\b": "must be, will be; or an active verb",
    r"\b(?:tells?|told|telling)\s+of\b": "reports, says",
    r"\bwithout\s+a\s+word\b": "silently",
    r"(?<!thing )(?<!where )(?<!body )\belse(?=[.;,])": "otherwise; or name the case",
    r"\belse\s+does\b": "name the other",
    r"\bmakes?\s+no\s+sense\b": "is invalid",
    r"\btak(?:e|es|en|ing)\b(?:\s+\w+)?\s+for\s+(?:lost|gone|dead|granted|its)\b": "treat as",
    r"\bshall\b": "must, will",
    r"\b(?:makes?|made|making)\s+(?:a|an|the|another|no|its)\s+(?:new\s+)?"
    rf"(?:{_THINGS})\b(?!'s|\s+(?:older|system)\b|\s+\[|[^.;]{{0,60}}\bdurabl)": "create",
    r"\b(?:makes?|made|making)\s+(?:channels|checkpoints|groups|segments|slots|backups|buckets)\b": "create",
    rf"\b(?:{_THINGS})\s+(?:(?:can|could|may)\s+be|is|are|was|were)\s+made\b(?!\s+(?:of|durable)\b)": "created",
    r"\bsuch\s+a\s+one\b": "name the thing",
    r"\b(?:is|are)\s+there\s+twice\b|\bthere\s+twice\b": "duplicated",
    r"\bstands?\s+still\b": "is stuck, is suspended",
    r"\bof\s+one's\s+own\b": "your own",
    r"(?<!there )\b(?:is|are|was|were)\s+no\s+"
    r"(?!(?:longer|more|less|such|finer|proof|substitute|protection|error|room|reason|need|point|use|end)\b)\w+": (
        "is not a …"
    ),
}

RULES = {re.compile(pattern, re.MULTILINE | re.IGNORECASE): advice for pattern, advice in _PATTERNS.items()}

_CODE_BLOCK = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_TEST = re.compile(r"\s*(?:async )?def test_(\w+)")
_INLINE_CODE = re.compile(r"(`+)(?!`)(?:(?!\n\n).)*?(?<!`)\1(?!`)", re.DOTALL)


class Finding(NamedTuple):
    """A phrase that reads as translated: where it is, what it is, and what to write instead."""

    path: Path
    line: int
    phrase: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.phrase!r}: {self.advice}"


def phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line (from 0), phrase and advice of each hit in a text, its code left out."""
    text = _INLINE_CODE.sub(_blank, _CODE_BLOCK.sub(_blank, text))
    for rule, advice in RULES.items():
        for hit in rule.finditer(text):
            yield text.count("\n", 0, hit.start()), " ".join(hit[0].split()), advice


def _blank(code: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "·", code[0])


def in_prose(path: Path) -> Iterator[Finding]:
    """Yield the hits in a page."""
    for line, phrase, advice in phrases(path.read_text()):
        yield Finding(path, line + 1, phrase, advice)


def in_messages(path: Path) -> Iterator[Finding]:
    """Yield the hits in a module's strings except docstrings: users read them in errors, warnings and logs."""
    nodes = _nodes(path)
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) not in documentation | parts and (text := _text(node)) is not None:
            for _, phrase, advice in phrases(text):
                yield Finding(path, node.lineno, phrase, advice)  # type: ignore[attr-defined]


@lru_cache(maxsize=1)  # a module's messages and its documentation are looked at one after the other
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def _text(node: ast.AST) -> str | None:
    """Return a string, with a word for each value that is formatted into it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def in_documentation(path: Path) -> Iterator[Finding]:
    """Yield the hits in a module's docstrings and comments."""
    for node in _nodes(path):
        if isinstance(node, ast.Expr) and (text := _text(node.value)) is not None:
            for line, phrase, advice in phrases(text):
                yield Finding(path, node.lineno + line, phrase, advice)
    for line, text in _comments(path.read_text()):
        for offset, phrase, advice in phrases(text):
            yield Finding(path, line + offset, phrase, advice)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a module, those of adjacent lines as one, with the line of the first."""
    start, lines = 0, []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != start + len(lines):
                yield start, "\n".join(lines)
                lines = []
            start = start if lines else token.start[0]
            lines.append(token.string.lstrip("#: "))
    if lines:
        yield start, "\n".join(lines)


def in_names(path: Path) -> Iterator[Finding]:
    """Yield the hits in the names of a module's tests, which are sentences."""
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if named := _TEST.match(text):
            for _, phrase, advice in phrases(named[1].replace("_", " ")):
                yield Finding(path, line, phrase, advice)


def pages() -> list[Path]:
    """Return the pages that are checked."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def modules() -> list[Path]:
    """Return the modules whose messages are checked, too."""
    return sorted((ROOT / "spillable_stream").rglob("*.py"))


def other_modules() -> list[Path]:
    """Return the modules whose docstrings and comments alone are checked."""
    return sorted(
        path for room in ("benchmarks", "demo", "examples", "scripts") for path in (ROOT / room).rglob("*.py")
    )


def test_modules() -> list[Path]:
    """Return the modules whose tests' names are checked."""
    return sorted((ROOT / "tests").rglob("test_*.py"))


def findings() -> Iterator[Finding]:
    """Yield every hit that counts."""
    for page in pages():
        yield from in_prose(page)
    for module in modules():
        yield from in_messages(module)
        yield from in_documentation(module)
    for module in other_modules():
        yield from in_documentation(module)
    for module in test_modules():
        yield from in_names(module)


def main() -> int:
    """Print the hits, and return the exit status: 1 if there are any."""
    found = sorted(findings())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
