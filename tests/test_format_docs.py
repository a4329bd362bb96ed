"""docs/format.md, the diagrams and tables in the code, and the bytes that are written say the same."""

from __future__ import annotations

import itertools
import re
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from spillable_stream import Channel, Event, MemoryLossWarning
from spillable_stream.engine.requests import Control
from spillable_stream.format import frame, head_page, record
from spillable_stream.format.file_names import memory_file_id
from spillable_stream.format.frame import FrameType
from spillable_stream.log import layout
from spillable_stream.log.layout import Layout
from tests.support.damage import remove_memory_under

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "format.md").read_text()
GOLDEN = ROOT / "tests" / "golden" / "v1"
TYPES = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64"}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def diagram(text: str) -> tuple[list[int], list[list[str]]]:
    """Return the offsets above the first diagram of a text, and the rows of its cells."""
    lines = text.splitlines()
    top = next(i for i, line in enumerate(lines) if "┌" in line)
    rows = itertools.takewhile(lambda line: "└" not in line, lines[top + 1 :])
    cells = [[cell.strip() for cell in row.split("│")[1:] if cell.strip()] for row in rows]
    cells = [row[:-1] if row[-1].startswith("slot") else row for row in cells]
    return [int(n) for n in lines[top - 1].split()], cells


def offsets(*codes: str) -> list[int]:
    """Return where fields of a struct begin, and where the last one ends."""
    return list(itertools.accumulate((struct.calcsize(f"<{code}") for code in codes), initial=0))


def codes(layout: struct.Struct) -> list[str]:
    return re.findall(r"\d*[a-zA-Z]", layout.format.lstrip("<"))


class TestTheFrame:
    CODES = (*codes(frame._HEADER), *codes(frame._CRC))

    @pytest.mark.parametrize("text", [section("Frames"), frame.__doc__ or ""], ids=["docs", "code"])
    def test_fields_begin_where_the_struct_has_them(self, text: str) -> None:
        drawn, rows = diagram(text)
        *begins, end = offsets(*self.CODES)
        assert drawn == [*begins, end]
        assert end == frame.HEADER_SIZE_BYTES
        assert len(rows[0]) == len(self.CODES)

    def test_fields_have_one_name(self) -> None:
        assert diagram(section("Frames"))[1][0] == diagram(frame.__doc__ or "")[1][0]

    def test_types_are_those_of_the_struct(self) -> None:
        named = [re.search(r"u\d+", cell) for cell in diagram(section("Frames"))[1][1]]
        for code, found in zip(self.CODES, named, strict=True):
            assert found is None or found[0] == TYPES[code]
        assert [code for code, found in zip(self.CODES, named, strict=True) if found] == list("IBHIQQ")

    def test_sizes_and_limits_are_those_of_the_code(self) -> None:
        assert f"a header of {frame.HEADER_SIZE_BYTES} bytes" in section("Frames")
        assert frame.MAX_PAYLOAD_BYTES == 2**30 and "`length` is at most 2³⁰" in PAGE
        assert frame.MAX_COUNT == 2**32 - 1 and "2³²\N{MINUS SIGN}1" in PAGE
        assert f"| schemas of one channel | {frame.MAX_SCHEMAS:,} |" in PAGE
        assert f"Format version {record.FORMAT_VERSION}." in PAGE


class TestTheHead:
    SLOT = (*codes(head_page._SLOT), *codes(head_page._CRC))

    @pytest.mark.parametrize("text", [section("The head"), head_page.__doc__ or ""], ids=["docs", "code"])
    def test_fields_begin_where_the_struct_has_them(self, text: str) -> None:
        drawn, rows = diagram(text)
        begins = offsets(*self.SLOT)
        ends_of_tiers = {begins[i] for i in (3, 4, 6, 7)}  # a tier's end is drawn as one field of three
        fields = [at for at in begins if at not in ends_of_tiers]
        assert drawn == fields[: len(drawn)] and len(drawn) >= len(fields) - 1
        assert len(rows[0]) == len(fields) - 1

    def test_fields_have_one_name(self) -> None:
        docs, code = diagram(section("The head"))[1][0], diagram(head_page.__doc__ or "")[1][0]
        assert docs == code

    def test_places_are_those_of_the_code(self) -> None:
        text, *_ = section("The head").split("\n\n```", 1)
        first, second = head_page._SLOT_OFFSETS
        assert f"{head_page.HEAD_SIZE_BYTES} bytes" in text and f"at {first} and {second}" in text
        host = f"host name, UTF-8, {head_page._HOST_SIZE} bytes from {head_page.HOST_OFFSET}"
        assert host in section("The head") and host in (head_page.__doc__ or "")
        assert codes(head_page._MARK) == ["Q", "I"]
        assert f"mark, u64 at {head_page.MARK_OFFSET}," in section("The head")
        assert f"mark, {head_page._MARK.size} bytes at {head_page.MARK_OFFSET}:" in (head_page.__doc__ or "")

    def test_states_are_those_of_the_code(self) -> None:
        assert [int(state) for state in head_page.HeadState] == [0, 1, 2]
        assert "`state` is 0 (clean), 1 (an append is under way" in " ".join(PAGE.split())


def keys(payload: str) -> dict[str, bool]:
    """Return the keys of the maps that a description shows, and whether each must be there."""
    found: list[dict[str, bool]] = []
    for text in re.findall(r"`\{(.*?)\}`", payload):
        while (shorter := re.sub(r"\[[^\[\]]*\]|\{[^{}]*\}", "", text)) != text:
            text = shorter
        names = [part.partition(":")[0].strip() for part in text.split(",")]
        found.append({name.rstrip("?"): not name.endswith("?") for name in names if name and name != "…"})
    return {name: all(one.get(name, False) for one in found) for one in found for name in one}


def documented() -> dict[FrameType, dict[str, bool]]:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| (.*) \|$", section("Frames"), re.MULTILINE)
    assert [(int(number), name) for number, name, _ in rows] == [(int(t), t.name) for t in FrameType]
    return {FrameType[name]: keys(payload) for _, name, payload in rows}


def in_the_code() -> dict[FrameType, dict[str, bool]]:
    rows = re.sub(r"\n +", " ", record.__doc__ or "")  # each in one line
    return {FrameType[name]: keys(text) for name, text in re.findall(r"^([A-Z_]+)  +(.*)$", rows, re.MULTILINE)}


def written(path: Path) -> Iterator[tuple[FrameType, dict[str, object]]]:
    """Yield the records of a file: its header's checksum is left out, so the file may be of any channel."""
    data, at = path.read_bytes(), 0
    while header := frame.parse_header(data, at, None):
        payload = data[at + frame.HEADER_SIZE_BYTES :][: header.length]
        if header.type not in (FrameType.PUT, FrameType.ROLLBACK):
            yield header.type, msgpack.unpackb(payload, strict_map_key=False)
        at += frame.frame_size(header.length)


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Channels that have every type of record: golden ones, and one with segments and with a loss."""
    path = tmp_path_factory.mktemp("channels") / "channel"
    with Channel(path, memory_capacity=5, overflow_timeout=0, minimum_required_space=0) as channel:
        channel.consumer("other").close()
        for size in (3, 20, 1):
            with channel.put_transaction() as put:
                put.put_many(Event(b"x" * 1_000) for _ in range(size))
        with channel.take_transaction() as take:
            take.take_many(2)
        channel.drop_group("other")
        channel.close(flush=False)
    remove_memory_under(path.parent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryLossWarning)
        with Channel(path, max_inline_bytes=100) as channel:
            with channel.put_transaction() as put:
                put.put_many(Event(b"x" * 1_000) for _ in range(20))
            channel.checkpoint()
    return [*(golden.parent for golden in GOLDEN.glob("*/channel.json")), path, in_a_store(path.parent / "objects")]


def in_a_store(path: Path) -> Path:
    """Create a channel of objects in a directory, with what only those have."""
    with Channel(f"object+file://{path}", commit_interval=0) as channel:
        channel.consumer("default")
        channel.engine().commit(Control(FrameType.TRIM, {"through": 1, "births": 1, "deleted": 0}))
        channel.checkpoint()
    return path


class TestRecords:
    def test_the_tables_have_the_same_keys(self) -> None:
        assert in_the_code() == documented()

    def test_what_is_written_has_the_keys_of_the_table(self, channels: list[Path]) -> None:
        table, seen = documented(), set()
        for channel in channels:
            parts = ("data", "checkpoint", "log", "checkpoints", "segments")
            for path in [file for part in parts for file in channel.glob(f"{part}/*")]:
                for type_, value in written(path):
                    seen.add(type_)
                    if type_ is not FrameType.OPTIONS:  # its keys are options
                        needed = {key for key, must in table[type_].items() if must}
                        assert needed <= set(value) <= set(table[type_]), (path, type_.name)
        assert seen == set(FrameType) - {FrameType.PUT, FrameType.ROLLBACK, FrameType.DUES}  # which are no maps


LISTED = re.findall(r"^DIR/(\S+)", PAGE, re.MULTILINE)
PARTS = {
    **dict.fromkeys(("N", "G", "F"), r"\d{6,}"),
    **{"O": r"\d{12,}", "K": r"\d{2}", "BATCH": r"\d+", "UUID": "[0-9a-f]{32}", "TIME": r"\S+"},
    **dict.fromkeys(("NAME", "OWNER"), r"[\w.-]+"),
}
PATTERNS = [re.sub("[A-Z]+", lambda part: PARTS[part[0]], re.escape(name)) for name in LISTED]

OBJECTS = [
    re.sub("[A-Z]+", lambda part: {**PARTS, "N": r"\d{20}", "BIRTH": r"\d{20}"}.get(part[0], ".+"), re.escape(name))
    for name in re.findall(r"^ROOT/(\S+)", PAGE, re.MULTILINE)
]


class TestFiles:
    def test_the_listings_are_the_same(self) -> None:
        in_code = re.findall(r"^ {4}DIR/(\S+) +(.*)", layout.__doc__ or "", re.MULTILINE)
        assert in_code == re.findall(r"^DIR/(\S+) +(.*)", PAGE, re.MULTILINE)

    def test_the_layout_has_the_names_that_are_listed(self, tmp_path: Path) -> None:
        at = Layout(tmp_path, "uuid", (tmp_path / "data",), tmp_path / "checkpoint", None)
        memory, segment = memory_file_id(3, 7), f"segment.OWNER.1.{'0' * 32}"
        made = [
            at.head, at.lock, at.open_lock, at.checkpoint_lock, at.memory, at.memory_origin,
            at.group_lock("NAME"), at.group_position("NAME"), at.group_query("NAME"), at.producer_lock("NAME"),
            at.log_file(1), at.log_file(memory), at.spare_file(1), at.spare_file(memory),
            at.segment_file(segment), at.segment_file(f"memory-{segment}"), *at.spare_segment_files(at.data_dirs[0]),
        ]  # fmt: skip
        for path in made:
            name = path.relative_to(tmp_path).as_posix()
            assert any(re.fullmatch(pattern, name) for pattern in PATTERNS), name

    def test_a_channel_has_no_other_files(self, channels: list[Path]) -> None:
        for channel in channels:
            patterns = OBJECTS if channel.name == "objects" else PATTERNS
            for path in channel.rglob("*"):
                name = path.relative_to(channel).as_posix()
                if path.is_file() and path.name != "owner.json":
                    assert any(re.fullmatch(pattern, name) for pattern in patterns), name
