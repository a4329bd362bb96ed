from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources import spooled_file
from spillable_stream.flow.sources.spooled_file import Decoding, SpooledFile, UnreadableFileError

TEXTS = st.text(st.sampled_from("aü\n\r"), max_size=40)


def read(path: Path, decoding: Decoding, offset: int = 0, limit: int = 3) -> list[tuple[list[bytes], int, int]]:
    file, found = SpooledFile(str(path), decoding, offset), []
    while (part := file.next(limit)) is not None:
        found.append((part.bodies.to_pylist(), part.start, part.end))
    file.close()
    return found


@given(text=TEXTS, limit=st.integers(1, 4), longest=st.integers(1, 6), charset=st.sampled_from(["UTF-8", "UTF-16"]))
def test_reading_from_the_end_of_any_part_gives_the_rest(
    tmp_path_factory: pytest.TempPathFactory, text: str, limit: int, longest: int, charset: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "spooled"
    path.write_bytes(text.encode(charset) if text else b"")
    decoding = Decoding(charset, max_line_characters=longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spooled_file, "_PIECE_BYTES", 7)
        parts = read(path, decoding, limit=limit)
        lines = text.split("\n")[: -1 if text.endswith("\n") else None]
        cut = [line[i : i + longest].encode() for line in lines for i in range(0, max(len(line), 1), longest)]
        assert [body for bodies, _, _ in parts for body in bodies] == (cut if text else [b""])
        for i, (_, start, end) in enumerate(parts):
            assert start == (parts[i - 1][2] if i else 0)
            rest = [body for bodies, _, _ in read(path, decoding, end, limit) for body in bodies]
            assert rest == [body for bodies, _, _ in parts[i + 1 :] for body in bodies]


def test_a_change_is_seen_before_the_next_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled_file, "_PIECE_BYTES", 4)
    (tmp_path / "f").write_bytes(b"1\n2\n3\n4\n")
    file = SpooledFile(str(tmp_path / "f"), Decoding())
    assert file.next(9) is not None
    (tmp_path / "f").unlink()
    with pytest.raises(UnreadableFileError, match="was removed"):
        file.next(9)


def test_an_unknown_character_set_is_refused() -> None:
    with pytest.raises(OptionError, match="no character set 'none'"):
        Decoding("none")
