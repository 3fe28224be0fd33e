from hypothesis import given, settings
from hypothesis import strategies as st

from gptwright.data.pieces import blocks, cut, piece_size
from gptwright.data.tokenizers import Gpt2Tokenizer, make_tokenizer

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


def test_a_text_without_any_boundary_still_ends_its_blocks() -> None:
    parts = list(blocks("x" * 95, 10, longest=20))
    assert [len(part) for part in parts] == [20, 20, 20, 20, 15]
    assert list(blocks("x" * 95, 10)) == ["x" * 95]


def test_blocks_end_before_a_space_where_no_line_ends() -> None:
    parts = list(blocks("word " * 40, 10, longest=20))
    assert "".join(parts) == "word " * 40
    assert all(part.startswith(" ") for part in parts[1:])
