"""A device's name taken apart, and the names of processors."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gptwright.hardware.match import (
    DeviceName,
    devices_in,
    is_apple_name,
    is_cpu_name,
    parse_name,
    words_of,
)
from gptwright.hardware.table import find_spec


def test_a_name_tells_memory_form_and_place() -> None:
    assert parse_name("NVIDIA A100-SXM4-80GB") == DeviceName(
        ("nvidia", "a100"), 80, "sxm", None, laptop=False
    )
    assert parse_name("NVIDIA H100 80GB HBM3") == DeviceName(
        ("nvidia", "h100"), 80, None, "hbm3", laptop=False
    )
    assert parse_name("NVIDIA GeForce RTX 3070 Laptop GPU") == DeviceName(
        ("nvidia", "geforce", "rtx", "3070"), None, None, None, laptop=True
    )


@pytest.mark.parametrize("name", ["T4 16GB 16GB", "H100 SXM5 PCIe", "T4 GPU GPU", "RTX 3060 laptop mobile"])
def test_a_name_that_says_one_thing_twice_is_none(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rtx4070tisuper", "rtx 4070 ti super"),
        ("RTX4090D", "rtx 4090 d"),
        ("RTXA6000", "rtx a6000"),
        ("GTX1080Ti", "gtx 1080 ti"),
        ("RX7900XTX", "rx 7900 xtx"),
        ("7900 XTX", "7900 xtx"),
        ("m2max", "m2 max"),
        ("8xH100", "h100"),
        ("8 A100s", "a100"),
        ("16 GB M1", "16gb m1"),
        ("2 × RTX 3090", "rtx 3090"),
        ("M40", "m40"),
        ("MI300X", "mi300x"),
        ("A100 (80 GiB)", "a100 80gib"),
        ("NVIDIA® TITAN Xp(TM)", "nvidia titan xp"),
        ("", ""),
    ],
)
def test_words_that_are_written_together(name: str, words: str) -> None:
    assert words_of(name) == words.split()


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "laptop CPU",
        "AMD Ryzen 7 5800X",
        "AMD Ryzen 7 5700U with Radeon Graphics",
        "Intel Core i7-9750H",
        "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz",
        "Intel(R) Core(TM) Ultra 7 155H",
        "Intel(R) Xeon(R) Platinum 8375C",
        "AMD EPYC 7B12",
        "Apple M1 CPU",
        "Snapdragon X Elite",
        "x86_64",
    ],
)
def test_processors_are_known_as_such(name: str) -> None:
    assert is_cpu_name(name)
    assert find_spec(name) is None


@pytest.mark.parametrize(
    "name", ["RTX 4070", "Apple M1", "GPU", "laptop", "Intel Arc A770", "AMD Radeon", "T4", ""]
)
def test_other_names_are_no_processors(name: str) -> None:
    assert not is_cpu_name(name)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("8xH100", 8),
        ("RTX 4090 x4", 4),
        ("RTX4090x2", 2),
        ("8 A100s", 8),
        ("4 RTX 3090", 4),
        ("2 3090s", 2),
        ("80 GB H100", None),
        ("16 GiB M1", None),
        ("MX450", None),
        ("GeForce MX450", None),
        ("RTX 4090", None),
    ],
)
def test_how_many_devices_a_name_says(name: str, count: int | None) -> None:
    assert devices_in(name) == count


def test_an_apple_chip_is_known_as_such_before_it_is_in_the_table() -> None:
    assert all(map(is_apple_name, ("M5", "Apple M6 Max 64GB", "m5pro", "Mac mini", "MacBook Air")))
    assert not any(map(is_apple_name, ("MI300X", "RTX 4070", "M40", "GTX 980M", "")))


@given(st.text(max_size=30))
@example("²²gb")
@example("١٢ gb")
def test_any_text_is_taken_apart_into_its_own_words(text: str) -> None:
    """Digits of another script or above the line are words, and no gigabytes."""
    name = parse_name(text)
    if name is not None:
        assert [word for word in words_of(text) if word in name.words] == list(name.words)
        assert name.gigabytes is None or str(name.gigabytes) in text
    assert not is_cpu_name(f"{text} GPU")
