"""Makes `regex_answers.json.gz`: what Java's regular expressions find, for patterns by hand and patterns by chance.

    javac -d /tmp/answers tests/support/java/RegexAnswers.java
    python -m tests.support.java.make_answers /tmp/answers

It was made with OpenJDK 17. A pattern is `[pattern, replacement, answers]`, the answers are null where Java refuses the
pattern, else for each text of "texts" `[found, fits, replaced, groups]`. Patterns by chance are tried on short texts
only, with which the table begins: some take forever on long ones.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

__all__ = ["ANSWERS", "TEXTS"]

ANSWERS = Path(__file__).parent / "regex_answers.json.gz"

TEXTS = [
    "",
    "a",
    "b",
    "A",
    "\n",
    "\xe9",
    "\xdf",
    "\u212a",
    "\u017f",
    "ab",
    "aB",
    "a\n",
    "a\r",
    "\r\n",
    "b\u2028",
    "a\x85",
    "a\xe9",
    "\u65e5\u672c",
    "a\u65e5",
    "\U0001f600a",
    "\x00\x1f",
    "\xa0a",
    "aab",
    "a\r\n",
    "a\nb",
    "a b",
    "a\x0bb",
    "\xc9 b",
    "_a1",
    "a\\b",
    "$a^",
    "a\u2029b",
    "abab",
    "a\r\nb\n",
    " a\tb ",
    "a-b.c",
    "12:34:56",
    "x=1, y=22",
    "[x]{y}(z)",
    "aaa bbb aaa",
    "2024-01-02 03:04:05 ERROR a.b.C - msg",
    '10.0.0.1 - - [01/Jan/2024:00:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 12',
]
SHORT = [text for text in TEXTS if len(text) <= 6]  # the first of them

BY_HAND = [
    ".*",
    ".+",
    "a.b",
    "^a",
    "a$",
    "^a$",
    "^$",
    "$",
    "^",
    "a*$",
    "(a*)$",
    "(?m)^a",
    "(?m)b$",
    "(?m)^",
    "(?m)$",
    "(?s).+",
    "(?d)a.$",
    "(?dm)^b",
    r"a\Z",
    r"a\z",
    r"\Aa",
    r"\ba",
    r"a\b",
    r"\Ba",
    r"\b",
    r"\B",
    r"\w+",
    r"\W",
    r"\d+",
    r"\D+",
    r"\s+",
    r"\S+",
    r"\h",
    r"\H",
    r"\v",
    r"\V",
    r"\R",
    r"a\Rb",
    r"[\s]",
    r"[^\s]+",
    r"[\S]+",
    r"[\w-]+",
    r"[^\W]",
    r"[\d-z]",
    "(?i)a",
    "(?i)A",
    "(?i)[a-b]+",
    "(?i)[^a]",
    "(?i)k",
    "(?i)s",
    "(?i)é",
    "(?i:a)b",
    "(?i)a(?-i)b",
    "a(?i)b|B",
    "((?i)a)b",
    r"(?i)\p{Lower}",
    r"\p{Alpha}+",
    r"\p{Upper}",
    r"\P{Alpha}",
    r"\p{Punct}",
    r"\p{Space}",
    r"\p{L}+",
    r"\p{Lu}",
    r"\pL",
    r"\P{L}",
    r"[\p{L}\d]+",
    r"\p{IsL}",
    r"\p{javaLowerCase}",
    r"\p{Foo}",
    r"\p{Cntrl}",
    r"\p{XDigit}+",
    "[abc]",
    "[^abc]",
    "[a-c&&[b-d]]",
    "[a-z&&[^b]]+",
    "[a-z&&b]",
    "[^a&&b]",
    "[a[b]]",
    "[[a]",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    "[a\\-b]",
    "[b-a]",
    "[a&&]",
    "[.]",
    "[$^]",
    r"[\\]",
    r"[\]]",
    "[&a]",
    r"[\Qa-b\E]",
    r"\Qa.b\E",
    r"\Q[x]\E",
    r"\Qa",
    r"\x41",
    r"\x{1F600}",
    r"\u00e9",
    r"\uD83D\uDE00",
    r"\0101",
    r"\07",
    r"\cA",
    r"\e",
    r"\t",
    r"\_",
    r"\-",
    r"\q",
    r"\.",
    r"\[x\]",
    r"\{y\}",
    "{",
    "a{",
    "}",
    "a{,2}",
    "a{1,2}",
    "a{2}",
    "a{2,}",
    "a{2,1}",
    "(ab){2}",
    "a{2}?",
    "a{1,2}+",
    "a*?b",
    "a+?",
    "a??b",
    "a*+b",
    "a++b",
    "a?+a",
    "a**",
    "*a",
    "+",
    "?",
    "a|b",
    "a|",
    "|a",
    "()",
    "(|a)+",
    "(a|ab)(c|bcd)?(b*)",
    "(a*)*",
    "(a*)+",
    "(a+)*",
    "(a|b)*",
    "(?:(a)|b)*",
    "((a)|(b))+",
    "(a)?b",
    "(a)|(b)",
    "(a)|b",
    "(a)(b)?",
    r"(a)\1",
    r"(a)(b)\2\1",
    r"\1(a)",
    r"(a)\11",
    r"(?<n>a)\k<n>",
    "(?<n>a)(?<m>b)?",
    "(?<n>a)(?<n>b)",
    "(?<1>a)",
    "(?=a)a",
    "(?!a).",
    "a(?=b)",
    "a(?!b)",
    "(?<=a)b",
    "(?<!a)b",
    "(?<=a|bb)b",
    "(?>a*)b",
    "(?>a|ab)b",
    "(?x) a b # c",
    "(?x)[a b]",
    "(?u)é",
    "(?U)\\w",
    "(?iu)É",
    "(",
    ")",
    "(a",
    "a)",
    "(?",
    "(?z)",
    "(?P<n>a)",
    "a\\",
    r"^(\S+) (\S+)",
    r"(\d+):(\d+):(\d+)",
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s+(\w+)",
    r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\w+) ([^ "]*)[^"]*" (\d+) (\d+|-)',
    r"(\w+)=(\d+)",
    r"\s*,\s*",
    r"^\s*$",
    r"^\s+|\s+$",
    ".*ERROR.*",
    "^.*$",
    "(.*)\\n?$",
    "a.*?b",
    ".*(a|b)$",
    "(a$)|b",
    "(?:a$)",
    "a$b",
    "[^\\n]+$",
    "\\r$",
    "x*",
    "b*",
    "a?",
]

REPLACEMENTS = ["", "-", "<$1>", "$2$1", r"\$", r"a\\b", "$0", "${n}", "$", "$9", "$12", "[$1", "\\"]


def by_chance(random_: random.Random, depth: int = 2) -> str:
    """A pattern made of what most patterns are made of."""

    def atom(depth: int) -> str:
        kinds = [
            "a",
            "b",
            "A",
            "é",
            " ",
            r"\.",
            ".",
            "[ab]",
            "[^a]",
            "[a-z]",
            r"\w",
            r"\s",
            r"\d",
            r"\S",
            r"\b",
            r"[^\s]",
            r"[\w.]",
            "^",
            "$",
            r"\n",
        ]
        if depth and random_.random() < 0.45:
            inner = alternatives(depth - 1)
            return random_.choice(["({})", "({})", "(?:{})", "(?i:{})", "(?={})", "(?!{})"]).format(inner)
        return random_.choice(kinds)

    def sequence(depth: int) -> str:
        parts = []
        for _ in range(random_.randint(1, 4)):
            parts.append(atom(depth))
            if random_.random() < 0.4:
                parts[-1] += random_.choice(["*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??", "++"])
        return "".join(parts)

    def alternatives(depth: int) -> str:
        return "|".join(sequence(depth) for _ in range(random_.choice([1, 1, 1, 2])))

    return alternatives(depth)


def ask(classes: str, patterns: list[tuple[str, str]], texts: list[str]) -> list[list[object]]:
    """Ask Java about every pattern and every text."""
    questions = [(p, r, t) for p, r in patterns for t in texts]
    lines = "\n".join("\t".join(field.encode().hex() for field in question) for question in questions)
    run = subprocess.run(
        ["java", "-cp", classes, "RegexAnswers"],
        input=lines + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answers = iter(run.stdout.splitlines())
    return [[p, r, _parsed([next(answers) for _ in texts])] for p, r in patterns]


def _parsed(lines: list[str]) -> list[list[object]] | None:
    if lines[0] == "refused":
        return None
    found = []
    for line in lines:
        is_found, fits, replaced, *groups = line.split("\t")
        found.append([is_found == "true", fits == "true", _text(replaced), [_text(g) for g in groups]])
    return found


def _text(field: str) -> str | None:
    return None if field == "-" else bytes.fromhex(field[1:]).decode()


def main() -> None:
    random_ = random.Random(17)
    by_hand = [(p, r) for p in BY_HAND for r in ("<$1>" if "(" in p else "-", random_.choice(REPLACEMENTS))]
    others = [(by_chance(random_), random_.choice(REPLACEMENTS[:4])) for _ in range(500)]
    table = {"texts": TEXTS, "patterns": ask(sys.argv[1], by_hand, TEXTS) + ask(sys.argv[1], others, SHORT)}
    ANSWERS.write_bytes(gzip.compress(json.dumps(table, ensure_ascii=True, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main()
