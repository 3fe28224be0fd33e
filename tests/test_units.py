"""Numbers as people read them."""

import pytest

from gptwright import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (512, "512"),
        (99_999, "99,999"),
        (802_944, "0.80M"),
        (123_590_400, "123.59M"),
        (7.6e9, "7.60B"),
        (2.5e13, "25.00T"),
    ],
)
def test_counts_are_nanogpts(value: float, text: str) -> None:
    assert units.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (512, "512 B"),
        (3_250_586, "3.1 MiB"),
        (12_455_405_158, "11.6 GiB"),
        (2**41, "2.0 TiB"),
        (1024, "1.0 KiB"),
    ],
)
def test_sizes_have_binary_prefixes(value: float, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0084, "8.40 ms"),
        (2.34, "2.3 s"),
        (245, "4 min 05 s"),
        (3599.9, "1 h 00 min"),
        (11_520, "3 h 12 min"),
        (532_800, "6 d 04 h"),
        (1497 * 86400 + 30_000, "1,497 d"),
    ],
)
def test_durations_have_two_parts_at_most(value: float, text: str) -> None:
    assert units.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2386.3, "2,386"), (62.09, "62"), (1.93, "1.9"), (0.02, "0.02"), (0, "0")]
)
def test_ratios_have_two_digits(value: float, text: str) -> None:
    assert units.ratio(value) == text


def test_one_is_no_plural() -> None:
    assert units.counted(1, "document") == "1 document"
    assert units.counted(0, "document") == "0 documents"
    assert units.counted(2000, "stretch", "stretches") == "2,000 stretches"


def test_rates_and_shares() -> None:
    assert units.flops_rate(187.4e9) == "187.4 GFLOP/s"
    assert units.flops_rate(40.2e12) == "40.2 TFLOP/s"
    assert units.percent(0.3819) == "38.2 %"
    assert units.span(0.012, 0.034) == "0.01 to 0.03"
    assert units.span(0.011, 0.0139) == "0.01"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("350M", 350e6),
        ("9.04B", 9_040_000_000),
        ("10 billion", 10e9),
        ("0.5 million tokens", 500_000),
        ("300k", 300_000),
        ("1e9", 1e9),
        ("1,003,854", 1_003_854),
        ("10_000", 10_000),
        (".5", 0.5),
        ("20", 20),
        ("1.5B params", 1.5e9),
    ],
)
def test_a_count_is_read_as_people_write_it(text: str, number: float) -> None:
    assert units.parse_count(text) == number


@pytest.mark.parametrize("text", ["", "many", "10X", "1,00", "5 GB", "M", "ten"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        units.parse_count(text)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("8", 8), ("8h", 8), ("90min", 1.5), ("1d12h", 36), ("2 days", 48), ("1h 30m", 1.5), ("36 hours", 36)],
)
def test_hours_are_read_as_people_write_them(text: str, hours: float) -> None:
    assert units.parse_hours(text) == pytest.approx(hours)


@pytest.mark.parametrize("text", ["", "h", "8h of night", "8 hands"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        units.parse_hours(text)
