"""Speaking: ids that become text in time, stop texts, and many samples that say what each says alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.config.ingredients import MODERN
from gptwright.data.characters import ByteTokenizer, CharTokenizer
from gptwright.errors import ConfigError, DataError
from gptwright.train.speak import Sample, Speaker, _Text
from tests.model.models import shape_of, vivid_model

LETTERS = "abcdefghijklmnopqrstuvw"


@pytest.fixture
def speaker() -> Speaker:
    """Says letters; its last id ends a document."""
    model = vivid_model(shape_of(vocab_size=24, tie_weights=False, ingredients=MODERN), std=0.15).eval()
    return Speaker(model, CharTokenizer(LETTERS, separator=True), "none")


@given(text=st.text(alphabet="abé\n", max_size=12), stop=st.text(alphabet="abé", min_size=1, max_size=3))
def test_text_is_that_before_the_stop_text_and_comes_when_it_is_sure(text: str, stop: str) -> None:
    tokenizer = ByteTokenizer()
    made = _Text(tokenizer, stop)
    said = ""
    for token in tokenizer.encode(text).tolist():
        said += made.add(token)
        assert text.startswith(said)
        assert stop not in said
        if made.ended:
            break
    assert made.ended == (stop in text)
    assert said + made.rest() == text.partition(stop)[0]


def test_ids_without_meaning_and_broken_characters_stop_nothing() -> None:
    made = _Text(ByteTokenizer(), None)
    assert [made.add(token) for token in (*"é".encode(), 300, 0xFF, 0xC3)] == ["", "é", "", "\ufffd", ""]
    assert (made.ended, made.rest()) == (False, "\ufffd")
    assert made.add(256) == ""
    assert made.ended


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_many_samples_say_what_each_says_alone(speaker: Speaker, temperature: float) -> None:
    starts = ["a", "abcdefghijklmnopqrstuvw", "b", None, "hello", "a", "toast", "abcdefghijklmnop"]
    options: dict[str, Any] = {"max_new_tokens": 50, "temperature": temperature, "stop": "ed"}
    alone = ["".join(speaker.speak(start=start, seed=7 + n, **options)) for n, start in enumerate(starts)]
    for batch_size in (1, 3, 16):
        samples = [Sample(start=start, seed=7 + n) for n, start in enumerate(starts)]
        pieces = [""] * len(samples)
        for sample, piece in speaker.speak_all(samples, batch_size=batch_size, **options):
            pieces[samples.index(sample)] += piece
        assert [sample.text for sample in samples] == alone == pieces
        assert all(sample.ended and sample.seconds > 0 for sample in samples)
    if temperature:
        assert len({sample.tokens for sample in samples}) > 2, "all samples end alike: the test says little"
    assert [sample.tokens for sample in samples if len(sample.text) == 50] == [50] * sum(
        len(text) == 50 for text in alone
    )


def test_nobody_speaks_where_nothing_is_asked(speaker: Speaker) -> None:
    assert list(speaker.speak_all([])) == []
    for name in ("max_new_tokens", "batch_size"):
        option: dict[str, Any] = {name: 0}
        with pytest.raises(ConfigError, match=f"{name} = 0 is not a number from 1 up"):
            list(speaker.speak_all([Sample(start="a")], **option))
    with pytest.raises(DataError, match="'Z'"):
        next(speaker.speak_all([Sample(start="a"), Sample(start="Z")]))
