"""The device table's names against every way they are written."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gptwright.hardware.table import all_specs, find_spec, near_names

GIB = 1024**3
SPECS = {spec.name: spec for spec in all_specs()}


def found(name: str) -> str | None:
    """The device that a name means."""
    match = find_spec(name)
    return match.spec.name if match is not None else None


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA RTX A4000", "RTX A4000"),  # not A40
        ("NVIDIA L40S", "L40S"),  # not L4, not L40
        ("NVIDIA L40", "L40"),  # not L4
        ("NVIDIA A10G", "A10G"),  # not A10
        ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti"),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090 D"),
        ("NVIDIA RTX A1000", "RTX A1000"),  # not A100
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),  # not only "NVIDIA H100"
        ("nvidia l40s", "L40S"),
        ("TESLA T4", "T4"),
    ],
)
def test_a_piece_of_a_name_is_not_the_name(name: str, device: str) -> None:
    assert found(name) == device


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA RTX A3000 Laptop GPU",  # not A30
        "NVIDIA RTX A1000 Laptop GPU",
        "NVIDIA GeForce RTX 3050 6GB Laptop GPU",
        "NVIDIA GeForce RTX 2080 with Max-Q Design",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID T4-16Q",
        "RTX 6000",  # Quadro, Ada or Blackwell: 130, 364 or 504 TFLOP/s
        "RTX 4090 48GB",
        "RTX 4070 8GB",
        "RTX 4070 12GB 12GB",
        "RTX 4070 GPU GPU",
        "RTX RTX 4070",
        "GTX 4070",
        "AMD RTX 4070",
        "A100 NVL",
        "H100 SXM PCIe",
        "laptop CPU",
        "CPU",
        "laptop",
        "RTX",
        "GPU",
        "NVIDIA",
        "NVIDIA GeForce RTX",
        "TPU v3",
        "Apple GPU (arm)",
        "Apple M2 Pro CPU",
        "12GB",
        "",
        "  ",
    ],
)
def test_what_is_not_in_the_table_is_unknown_and_not_an_a100(name: str) -> None:
    assert found(name) is None


@pytest.mark.parametrize(
    ("names", "device"),
    [
        (
            "NVIDIA GeForce RTX 4070|RTX 4070|4070|rtx4070|RTX 4070 12GB|RTX 4070 12 GB|geforce rtx 4070|"
            "GeForce® RTX™ 4070|12GB RTX 4070|RTX-4070|  rtx   4070 |RTX 4070 GPU|NVIDIA RTX 4070 desktop|"
            "RTX 4070 graphics card|1x RTX 4070|RTX 4070 (12GB)|RTX 4070 12GB GDDR6X",
            "RTX 4070",
        ),
        ("GeForce RTX 4070 Ti SUPER|4070 ti super|rtx4070tisuper|RTX 4070Ti SUPER", "RTX 4070 Ti SUPER"),
        ("GeForce RTX 4070 SUPER|4070super", "RTX 4070 SUPER"),
        ("RTX 4060 Ti 16GB|rtx 4060ti 16g|4060 Ti 16 GiB", "RTX 4060 Ti 16GB"),
        ("NVIDIA A100-SXM4-80GB|A100 80GB SXM|A100-SXM-80GB", "A100 SXM 80GB"),
        ("NVIDIA A100-PCIE-40GB|A100 PCIe 40GB", "A100 PCIe 40GB"),
        ("NVIDIA A100 80GB PCIe|A100 80 GB PCIe HBM2e", "A100 PCIe 80GB"),
        ("Tesla V100-SXM2-16GB|V100 SXM2 16GB|nvidia-tesla-v100-sxm2-16gb", "V100 SXM 16GB"),
        ("Tesla V100-SXM2-32GB|Tesla V100-SXM3-32GB|Tesla V100-DGXS-32GB", "V100 SXM 32GB"),
        ("NVIDIA H100 PCIe|H100 80GB HBM2e", "H100 PCIe"),
        ("NVIDIA H100 NVL|H100 94GB", "H100 NVL"),
        ("H800|8xH800|8 x H800|NVIDIA H800", "H800 SXM"),
        ("RTX A4500|4x RTX A4500|NVIDIA RTX A4500|A4500 20GB", "RTX A4500"),
        ("NVIDIA RTX 6000 Ada Generation|RTX 6000 Ada|6000 ada|RTX6000 Ada 48GB", "RTX 6000 Ada"),
        ("Quadro RTX 6000|NVIDIA Quadro RTX 6000", "Quadro RTX 6000"),
        ("Quadro RTX 8000|RTX 8000", "Quadro RTX 8000"),
        ("TITAN Xp|NVIDIA TITAN Xp", "TITAN Xp"),
        ("TITAN X (Pascal)|NVIDIA TITAN X (Pascal)|TITAN X", "TITAN X Pascal"),
        ("GeForce GTX TITAN X", "GTX TITAN X"),
        ("Tesla T4|nvidia-tesla-t4|T4 16GB", "T4"),
        ("Tesla K80|K80", "K80"),
        ("NVIDIA GeForce GTX 1060 3GB", "GTX 1060 3GB"),
        ("GTX 1650 GDDR6", "GTX 1650 GDDR6"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition|NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell",
        ),
        ("RTX 6000 PRO|RTX 6000 Pro Blackwell|NVIDIA RTX 6000 Blackwell", "RTX PRO 6000 Blackwell"),
        ("RTX 6000 Blackwell Max-Q", "RTX PRO 6000 Blackwell Max-Q"),
        ("NVIDIA B300 SXM6 AC|B300|HGX B300|8xB300|B300 288GB", "B300"),
        ("Radeon 8060S Graphics|AMD Radeon 8060S|8060S|Strix Halo 128GB", "Radeon 8060S"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q"),
        ("RTX PRO 6000 Max-Q", "RTX PRO 6000 Blackwell Max-Q"),
        ("NVIDIA RTX PRO 4500 Blackwell|RTX PRO 4500", "RTX PRO 4500 Blackwell"),
        ("NVIDIA RTX PRO 5000 Blackwell 72GB|RTX PRO 5000 72GB", "RTX PRO 5000 Blackwell 72GB"),
        ("NVIDIA GB10|GB10|DGX Spark|NVIDIA DGX Spark|DGX Spark 128GB", "GB10"),
        ("Intel(R) Arc(TM) A770 Graphics|Arc A770|A770 16GB", "Arc A770 16GB"),
        ("Intel Arc B580|Arc B580 12GB", "Arc B580"),
        ("AMD Radeon PRO W7900|W7900 48GB", "Radeon PRO W7900"),
        ("Apple M4 Pro|M4 Pro 48GB|Mac mini M4 Pro", "M4 Pro"),
        ("Apple M5|M5 24GB|MacBook Pro M5", "M5"),
        ("Apple M3 Ultra|Mac Studio M3 Ultra 512GB", "M3 Ultra"),
        ("M3|MacBook Air M3 16GB|13-inch MacBook Air M3|iMac 24 M3", "M3"),
        ("MacBook Pro 14 M3 Pro|MacBook Pro 16-inch M3 Pro 36GB", "M3 Pro"),
        ("AMD Instinct MI300X|MI300X|MI300X OAM 192GB", "MI300X"),
        ("AMD Instinct MI250X|AMD Instinct MI250X/MI250", "MI250X"),
        ("AMD Radeon RX 7900 XTX|Radeon RX 7900XTX|7900 xtx", "RX 7900 XTX"),
        ("Apple M2 Pro|M2 Pro|m2pro|Apple M2 Pro GPU|MacBook Pro M2 Pro", "M2 Pro"),
        ("Apple M1|MacBook Air M1|Mac mini M1 16GB", "M1"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU|RTX 3080 Laptop 8GB", "RTX 3080 Laptop 8GB"),
        ("RTX 3080 Laptop GPU 16GB", "RTX 3080 Laptop 16GB"),
    ],
)
def test_one_device_by_all_its_names(names: str, device: str) -> None:
    for name in names.split("|"):
        assert found(name) == device, name


def test_what_a_name_leaves_open_is_said() -> None:
    match = find_spec("H100")
    assert match is not None
    assert match.assumed == (
        "H100 SXM (989.4 TFLOP/s, 80 GB, 3350 GB/s); the name fits"
        " H100 PCIe (756.4 TFLOP/s, 80 GB, 2000 GB/s), H100 NVL (835.5 TFLOP/s, 94 GB, 3900 GB/s) as well"
    )
    assert [other.name for other in match.alternatives] == ["H100 PCIe", "H100 NVL"]
    a100 = find_spec("A100")
    assert a100 is not None
    assert a100.spec.name == "A100 SXM 40GB"  # what fits the smaller one fits both
    assert "80 GB" in (a100.assumed or "")


@pytest.mark.parametrize("name", ["RTX 4070", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla T4"])
def test_a_name_that_leaves_nothing_open_assumes_nothing(name: str) -> None:
    match = find_spec(name)
    assert match is not None
    assert (match.assumed, match.alternatives) == (None, ())


def test_a_board_of_several_devices_is_one_of_them() -> None:
    match = find_spec("Tesla K80")
    assert match is not None
    assert match.spec.peaks == {"float32": pytest.approx(4.37e12, rel=0.001)}
    assert match.spec.memory_bytes == 12 * GIB
    assert match.assumed == "one of the board's two dies, which is what torch sees"
    assert "8.73 TFLOP/s" in match.spec.source


@pytest.mark.parametrize(
    ("name", "reported", "device"),
    [
        ("NVIDIA GeForce RTX 3080", 9.77, "RTX 3080 10GB"),
        ("NVIDIA GeForce RTX 3080", 11.76, "RTX 3080 12GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 15.70, "RTX 4060 Ti 16GB"),
        ("NVIDIA A100", 79.15, "A100 SXM 80GB"),
        ("Tesla T4", 14.56, "T4"),
        ("NVIDIA GeForce RTX 4070", 99.0, "RTX 4070"),
    ],
)
def test_the_memory_that_a_driver_reports_decides_between_variants(
    name: str, reported: float, device: str
) -> None:
    match = find_spec(name, memory_bytes=int(reported * GIB))
    assert match is not None
    assert match.spec.name == device


@pytest.mark.parametrize("form", ["{}", "{} GPU", "4x {}", "{maker} {}", "{maker} {} (TM)"])
def test_each_row_is_found_by_its_own_name(form: str) -> None:
    for name, row in SPECS.items():
        assert found(form.format(name, maker=row.vendor)) == name
        assert found(form.format(name, maker=row.vendor).upper()) == name


@given(st.text(max_size=30))
@example("\u00b2\u00b2gb")
@example("١٢ gb")
def test_any_text_is_a_row_or_unknown(text: str) -> None:
    assert found(text) in {None, *SPECS}


@given(
    st.sampled_from(sorted(SPECS)), st.text(alphabet="bcjkqvwyz5678", min_size=4, max_size=9), st.booleans()
)
def test_a_name_with_an_unexplained_word_is_unknown(name: str, junk: str, before: bool) -> None:
    assert find_spec(f"{junk} {name}" if before else f"{name} {junk}") is None
    assert find_spec(f"{junk}{name}") is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("RTX 4071", "RTX 4070"),
        ("RTX 6000", "RTX 6000 Ada"),
        ("RTX 4070 8GB", "RTX 4070"),
        ("M4 Pro 48GB", "M3 Pro"),
        ("GeForce 4090 Super", "RTX 4090"),
        ("H100 GPU from the cloud", "H100 SXM"),
    ],
)
def test_the_message_for_an_unknown_name_offers_near_ones(name: str, near: str) -> None:
    assert near in near_names(name)
    assert len(near_names(name)) <= 5


@pytest.mark.parametrize("name", ["", "???", "my own machine", "TPU v3-8"])
def test_what_resembles_nothing_offers_nothing(name: str) -> None:
    assert near_names(name) == []
