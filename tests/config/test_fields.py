"""What a setting accepts, as people, files and other programs write it, and what it says of the rest."""

from dataclasses import dataclass
from typing import Literal

import pytest

from gptwright.config.fields import fields_of, setting


@dataclass(frozen=True)
class Example:
    whole: int = setting(1, "a count", least=1, below=100)
    number: float = setting(0.5, "a share", above=0.0, most=1.0)
    flag: bool = setting(False, "a switch")
    text: str = setting("a", "a name")
    word: Literal["red", "green"] = setting("red", "a colour")
    maybe: int | None = setting(None, "perhaps a count", least=0)
    either: bool | Literal["auto"] = setting("auto", "a switch, or not")


FIELDS = fields_of(Example)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("whole", 7, 7),
        ("whole", 5e1, 50),
        ("number", 1, 1.0),
        ("number", 1e-300, 1e-300),
        ("flag", True, True),
        ("flag", 0, False),
        ("flag", "yes", True),
        ("flag", "OFF", False),
        ("text", "ä b", "ä b"),
        ("word", "green", "green"),
        ("maybe", None, None),
        ("maybe", 0, 0),
        ("either", "auto", "auto"),
        ("either", "false", False),
    ],
)
def test_values_come_out_in_the_fields_type(name: str, value: object, accepted: object) -> None:
    found = FIELDS[name].accept(value)
    assert (found, type(found)) == (accepted, type(accepted))


def test_a_whole_number_fits_64_bits() -> None:
    maybe = FIELDS["maybe"]
    assert maybe.accept(2**63 - 1) == 2**63 - 1
    for beyond in (2**63, 1e19, 10**400):
        with pytest.raises(ValueError, match="at least 0, or None; it is larger than any number of 64 bits"):
            maybe.accept(beyond)
    with pytest.raises(ValueError, match=r"above 0 and at most 1$"):
        FIELDS["number"].accept(1e300)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("whole", [0, 100, 2.5, "7", True, None, [7], float("nan"), 10**400], "a whole number, .* below 100"),
        ("number", [0, 1.1, -1, "0.5", False, float("inf"), 10**400], "a number, above 0 and at most 1"),
        ("flag", [2, 0.5, "maybe", None, []], "True or False"),
        ("text", ["", 7, None], "text"),
        ("word", ["blue", "", 1, None], "red or green"),
        ("maybe", [-1, "none"], "a whole number, at least 0, or None"),
        ("either", ["x", 2], "True or False, or auto"),
    ],
)  # fmt: skip
def test_what_is_refused_is_told_what_it_should_be(name: str, values: list[object], message: str) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"^it should be {message}$"):
            FIELDS[name].accept(value)


def test_a_field_knows_its_default_and_its_help_line() -> None:
    assert [(field.name, field.default) for field in FIELDS.values()][:2] == [("whole", 1), ("number", 0.5)]
    assert FIELDS["flag"].description == "a switch"
    assert Example() == Example(whole=1, number=0.5, flag=False, text="a", word="red")


def test_a_choice_among_words_says_all_of_them() -> None:
    assert FIELDS["word"].words == ("red", "green")
    assert FIELDS["flag"].words == ("True", "False")
    assert FIELDS["either"].words == ("True", "False", "auto")
    assert FIELDS["maybe"].words == FIELDS["text"].words == FIELDS["whole"].words == ()
