import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.data.pieces import ContentDraw, blocks, cut, piece_size
from gptwright.data.tokenizers import Gpt2Tokenizer, make_tokenizer
from gptwright.errors import DataError

LINES = st.lists(st.text(alphabet="ab \t\r\n\u2028\x1c好.", max_size=30)).map("\n".join)


@given(text=st.text() | LINES, size=st.integers(1, 12))
def test_pieces_join_to_the_document(text: str, size: int) -> None:
    pieces = cut(text, size)
    assert "".join(pieces) == text
    if len(text) > 8 * size:
        assert all(0 < len(piece) <= 2 * size for piece in pieces)
    else:
        assert pieces == [text]


def test_pieces_end_at_blank_lines_then_at_line_ends() -> None:
    paragraphs = ("word " * 10 + "\n\n") * 40
    assert all(piece.endswith("\n\n") for piece in cut(paragraphs, 100))
    crlf = ("word " * 10 + "\r\n\r\n") * 40
    assert all(piece.endswith("\r\n\r\n") for piece in cut(crlf, 100))
    lines = ("word " * 10 + "\n") * 40
    assert all(piece.endswith("\n") for piece in cut(lines, 100))


def test_a_document_of_64_ki_characters_stays_whole() -> None:
    size = piece_size(10**9)
    assert size == 8192
    assert len(cut("word\n\n" * 10_000, size)) == 1
    assert 6 <= len(cut("word\n\n" * 11_000, size)) <= 9


@settings(max_examples=100, deadline=None)
@given(text=LINES, size=st.integers(1, 20))
def test_blocks_encode_as_the_whole_would(text: str, size: int) -> None:
    trained = make_tokenizer("bpe:280", lambda: iter(["ab ab. \n\n ab\r\n" * 9]))
    for tokenizer in (Gpt2Tokenizer(), trained):
        parts = [token for block in blocks(text, size) for token in tokenizer.encode(block).tolist()]
        assert parts == tokenizer.encode(text).tolist()


def drawn(pieces: list[str], fraction: float) -> list[str]:
    draw = ContentDraw()
    for piece in pieces:
        draw.add(piece)
    draw.draw(fraction)
    return [piece for piece in pieces if draw.is_validation(piece)]


@given(
    pieces=st.lists(st.text(min_size=1), min_size=2, unique=True).flatmap(
        lambda unique: st.lists(st.sampled_from(unique)).map(lambda more: unique + more)
    ),
    fraction=st.floats(0, 1),
    data=st.data(),
)
def test_the_draw_depends_on_content_alone(pieces: list[str], fraction: float, data: st.DataObject) -> None:
    val = drawn(pieces, fraction)
    assert 0 < len(val) < len(pieces)
    assert sorted(drawn(data.draw(st.permutations(pieces)), fraction)) == sorted(val)
    assert not set(val) & (set(pieces) - set(val))


def test_the_draw_takes_what_was_asked() -> None:
    pieces = [f"piece {number}" for number in range(1000)]
    assert len(drawn(pieces, 0.1)) == pytest.approx(100, abs=2)


@pytest.mark.parametrize("pieces", [["alone"], ["same", "same"]])
def test_one_text_cannot_be_split(pieces: list[str]) -> None:
    with pytest.raises(DataError, match=r"of which 1 differ[\s\S]*--split nanogpt"):
        drawn(pieces, 0.1)
