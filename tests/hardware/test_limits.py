"""The least limit on memory is found, in both versions of control groups, and a missing one is none."""

from pathlib import Path

from gptwright.hardware.cpu import cpu_memory_bytes
from gptwright.hardware.limits import memory_limit


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_version_2_with_a_limit_on_an_ancestor(tmp_path: Path) -> None:
    written(tmp_path / "proc/self/cgroup", "0::/user.slice/job\n")
    written(tmp_path / "sys/fs/cgroup/user.slice/job/memory.max", "max\n")
    written(tmp_path / "sys/fs/cgroup/user.slice/memory.max", "1000000\n")
    limit = memory_limit(root=tmp_path)
    assert limit is not None
    assert limit.limit_bytes == 1_000_000
    assert limit.source.endswith("user.slice/memory.max")


def test_version_1_beside_version_2(tmp_path: Path) -> None:
    written(tmp_path / "proc/self/cgroup", "4:memory:/job\n1:cpu:/\n0::/\n")
    written(tmp_path / "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000\n")
    written(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{2**63 - 4096}\n")
    limit = memory_limit(root=tmp_path)
    assert limit is not None
    assert limit.limit_bytes == 2_000_000


def test_a_container_that_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    written(tmp_path / "proc/self/cgroup", "0::/somewhere/outside\n")
    written(tmp_path / "sys/fs/cgroup/memory.max", "3000000\n")
    limit = memory_limit(root=tmp_path)
    assert limit is not None
    assert limit.limit_bytes == 3_000_000


def test_without_groups_it_is_the_machines_memory(tmp_path: Path) -> None:
    limit = memory_limit(root=tmp_path)
    total = cpu_memory_bytes()
    assert (limit.limit_bytes if limit else None) == total
