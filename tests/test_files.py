"""Files are whole or absent, and a full disk is one clear error."""

import errno
from pathlib import Path

import pytest

from gptwright.errors import DiskFullError, OutputError
from gptwright.files import disk_full_as_error, replace_bytes, replace_text, unwritable_as_error


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replace_text(path, "old")
    replace_text(path, "नया")
    assert path.read_text("utf-8") == "नया"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_the_old_file(small_disk: Path) -> None:
    path = small_disk / "a"
    replace_bytes(path, b"old")
    with pytest.raises(DiskFullError, match=r"the disk of .* is full: .* free"):
        replace_bytes(path, b"x" * 4_000_000)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in small_disk.iterdir()] == ["a"]


@pytest.mark.parametrize("place", ["folder", "file/inside", "absent/inside"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("there")
    path = tmp_path / place
    with pytest.raises(OutputError, match=r"cannot be written: ") as refused, unwritable_as_error(path):
        replace_text(path, "new")
    assert refused.value.problem.startswith(str(path))
    assert not list(tmp_path.glob(".*.partial"))


def test_a_link_to_nothing_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    path = tmp_path / "link" / "run"
    message = r"run cannot be written: .*link is a link to nothing"
    with pytest.raises(OutputError, match=message), unwritable_as_error(path):
        path.mkdir(parents=True)


def test_other_errors_stay_themselves(tmp_path: Path) -> None:
    def failing() -> None:
        with disk_full_as_error(tmp_path):
            raise OSError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        failing()


@pytest.mark.parametrize("error", [OSError(errno.EFBIG, "File too large"), ValueError("(os error 27)")])
@pytest.mark.skipif(errno.EFBIG != 27, reason="the number of Linux and macOS")
def test_a_limit_of_file_sizes_is_no_full_disk(tmp_path: Path, error: Exception) -> None:
    with (
        pytest.raises(DiskFullError, match=r"larger than is allowed[\s\S]*FAT32"),
        disk_full_as_error(tmp_path),
    ):
        raise error


def test_a_quota_is_a_full_disk_in_any_libraries_words(tmp_path: Path) -> None:
    refused = ValueError(f"I/O error: Disk quota exceeded (os error {errno.EDQUOT})")
    with pytest.raises(DiskFullError, match="is full"), disk_full_as_error(tmp_path):
        raise refused
