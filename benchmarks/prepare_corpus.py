"""Measures `gptwright prepare` on a generated Parquet corpus with FineWeb-Edu's schema.

    python benchmarks/prepare_corpus.py --bytes 2e9 --kills 20 --out benchmarks/results/prepare-MACHINE.json

It generates the corpus, measures the tokenizer's own batch encoder on one core, prepares the corpus while it
samples the memory of the whole process tree, prepares it once more under SIGKILLs, and compares the bytes.

The text is English words at the frequencies that they have in this Python's own documentation strings, in
sentences and paragraphs; documents have FineWeb-Edu's lengths (log-normal, about 4.5 kB on average).
"""

import argparse
import hashlib
import json
import platform
import pydoc_data.topics
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from gptwright.data.bpe import gpt2_encoding
from gptwright.hardware.cpu import cpu_name, usable_cores

# FineWeb-Edu's files are about 2 GB with a thousand records a row group.
_FILE_BYTES = 500_000_000
_ROWS = 1000
_SAMPLE_SECONDS = 0.1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=float, default=2e9, help="bytes of text to generate")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--folder", type=Path, help="where corpus and datasets go; kept if given")
    parser.add_argument("--out", type=Path, help="where the result goes")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="prepare-corpus-"))
    corpus = folder / "corpus"
    if not corpus.exists():
        generate(corpus, int(options.bytes))
    result = measure(corpus, folder, workers=options.workers, kills=options.kills)
    text = json.dumps(result, indent=2) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    if options.folder is None:
        shutil.rmtree(folder)


def generate(folder: Path, size: int) -> None:
    """Parquet files with FineWeb-Edu's columns and `size` bytes of text in all."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1337)
    words, weights = _words()
    written = number = 0
    while written < size:
        path = folder / f"{number:03d}_00000.parquet"
        in_file = 0
        with pq.ParquetWriter(path, _schema(), compression="zstd") as writer:
            while in_file < _FILE_BYTES and written + in_file < size:
                table = _records(rng, words, weights)
                writer.write_table(table, row_group_size=_ROWS)
                in_file += table.column("text").nbytes
        written += in_file
        number += 1


def _words() -> tuple[np.ndarray, np.ndarray]:
    text = " ".join(pydoc_data.topics.topics.values())
    counts = Counter(re.findall(r"[A-Za-z]+(?:'[a-z]+)?|[0-9]+", text))
    words = np.array(list(counts), dtype=object)
    weights = np.cumsum(np.array(list(counts.values()), dtype=float))
    return words, weights / weights[-1]


def _records(rng: np.random.Generator, words: np.ndarray, weights: np.ndarray) -> pa.Table:
    lengths = np.clip(rng.lognormal(6.2, 0.9, _ROWS), 20, 40_000).astype(int)
    drawn = words[np.searchsorted(weights, rng.random(lengths.sum()))].tolist()
    ends = np.cumsum(lengths).tolist()
    texts = [_prose(drawn[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]
    scores = rng.uniform(2.5, 5.0, _ROWS)
    return pa.table(
        {
            "text": texts,
            "id": [f"<urn:uuid:{value:032x}>" for value in rng.integers(0, 2**62, _ROWS).tolist()],
            "dump": ["CC-MAIN-2024-10"] * _ROWS,
            "url": [f"https://example.org/{value}" for value in rng.integers(0, 2**40, _ROWS).tolist()],
            "file_path": ["s3://example/warc.gz"] * _ROWS,
            "language": ["en"] * _ROWS,
            "language_score": rng.uniform(0.65, 1.0, _ROWS),
            "token_count": pa.array((lengths * 1.3).astype(int), pa.int64()),
            "score": scores,
            "int_score": pa.array(np.rint(scores).astype(int), pa.int64()),
        },
        schema=_schema(),
    )


def _prose(words: list[str]) -> str:
    sentences = [" ".join(words[start : start + 17]) + "." for start in range(0, len(words), 17)]
    return "\n\n".join(" ".join(sentences[start : start + 6]) for start in range(0, len(sentences), 6))


def _schema() -> pa.Schema:
    text, number, whole = pa.string(), pa.float64(), pa.int64()
    return pa.schema(
        [
            ("text", text), ("id", text), ("dump", text), ("url", text), ("file_path", text),
            ("language", text), ("language_score", number), ("token_count", whole), ("score", number),
            ("int_score", whole),
        ]
    )  # fmt: skip


def measure(corpus: Path, folder: Path, *, workers: int, kills: int) -> dict[str, Any]:
    before = batch_encoder_speed(corpus)
    run = prepare_and_watch(corpus, folder / "undisturbed", workers)
    after = batch_encoder_speed(corpus)
    fast = max(before["wall"], after["wall"])
    fast_cpu = max(before["processor"], after["processor"])
    report = run.pop("report")
    del report["out"]
    result = {
        "schema": "gptwright.benchmark.prepare/1",
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": cpu_name(),
            "cores": usable_cores(),
            "load_average_at_end": psutil.getloadavg(),
            "versions": {name: metadata.version(name) for name in ("tiktoken", "pyarrow", "numpy")},
        },
        "corpus": {
            "files": len(list(corpus.iterdir())),
            "parquet_bytes": sum(path.stat().st_size for path in corpus.iterdir()),
            "text_bytes": report["source_bytes"],
            "documents": report["documents"],
        },
        "workers": workers,
        "batch_encoder_bytes_per_second_one_core": {"before": before, "after": after},
        **run,
        "bytes_per_second": report["source_bytes"] / run["seconds"],
        "tokens_per_second": sum(report["tokens"].values()) / run["seconds"],
        "relative_to_workers_times_batch_encoder": report["source_bytes"] / run["seconds"] / workers / fast,
        "relative_in_processor_time": report["source_bytes"] / run["processor_seconds"] / fast_cpu,
        "memory_bound_bytes": 2**30 + 300_000_000 * workers,
        "report": report,
    }
    if kills:
        result["kills"] = under_kills(corpus, folder, workers, kills, run["seconds"])
    return result


def batch_encoder_speed(corpus: Path) -> dict[str, float]:
    """Bytes of text a second of tiktoken's own `encode_ordinary_batch` on one thread; the best of three.

    By the clock and by processor time, which on a busy machine is the fairer one.
    """
    path = sorted(corpus.iterdir())[0]
    rows = next(pq.ParquetFile(path).iter_batches(4 * _ROWS, columns=["text"])).column(0).to_pylist()
    size = sum(len(text.encode()) for text in rows)
    encoding = gpt2_encoding()
    wall, processor = [], []
    for _ in range(3):
        began, used = time.perf_counter(), time.process_time()
        encoding.encode_ordinary_batch(rows, num_threads=1)
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    return {"wall": size / min(wall), "processor": size / min(processor)}


def command(corpus: Path, out: Path, workers: int) -> list[str]:
    return [
        sys.executable, "-m", "gptwright", "prepare", str(corpus), "--tokenizer", "gpt2",
        "--workers", str(workers), "--out", str(out), "--json",
    ]  # fmt: skip


def prepare_and_watch(corpus: Path, out: Path, workers: int) -> dict[str, Any]:
    shutil.rmtree(out, ignore_errors=True)
    used = _processor_seconds()
    began = time.perf_counter()
    process = subprocess.Popen(command(corpus, out, workers), stdout=subprocess.PIPE, text=True)
    peaks = {"tree_rss": 0, "tree_pss": 0, "largest_process_rss": 0, "parent_rss": 0}
    watcher = threading.Thread(target=_watch, args=(process.pid, peaks))
    watcher.start()
    printed, _ = process.communicate()
    seconds = time.perf_counter() - began
    watcher.join()
    if process.returncode:
        raise SystemExit(f"prepare ended with {process.returncode}")
    return {
        "seconds": seconds,
        "processor_seconds": _processor_seconds() - used,
        "peak_bytes": peaks,
        "report": json.loads(printed),
    }


def _processor_seconds() -> float:
    """What this process's children, and theirs, have used in all."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _watch(pid: int, peaks: dict[str, int]) -> None:
    """Samples resident memory; pages that two processes share count twice in RSS and once in PSS."""
    try:
        parent = psutil.Process(pid)
        while parent.is_running() and parent.status() != psutil.STATUS_ZOMBIE:
            sizes = []
            pss = 0
            for process in [parent, *parent.children(recursive=True)]:
                try:
                    sizes.append(process.memory_info().rss)
                    pss += getattr(process.memory_full_info(), "pss", 0)
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            if sizes:
                peaks["tree_rss"] = max(peaks["tree_rss"], sum(sizes))
                peaks["tree_pss"] = max(peaks["tree_pss"], pss)
                peaks["largest_process_rss"] = max(peaks["largest_process_rss"], *sizes)
                peaks["parent_rss"] = max(peaks["parent_rss"], sizes[0])
            time.sleep(_SAMPLE_SECONDS)
    except psutil.NoSuchProcess:
        return


def under_kills(corpus: Path, folder: Path, workers: int, kills: int, seconds: float) -> dict[str, Any]:
    """The same with SIGKILLs at random moments, about one each twentieth of the undisturbed time."""
    out = folder / "killed"
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(folder / "killed.partial", ignore_errors=True)
    rng = random.Random(1337)
    done = 0
    began = time.perf_counter()
    while True:
        process = subprocess.Popen(command(corpus, out, workers), stdout=subprocess.DEVNULL)
        try:
            # At least the start of Python and its workers, else no run would ever get anything done.
            wait = 4 + rng.uniform(0.5, 1.5) * seconds / max(1, kills)
            process.wait(timeout=wait if done < kills else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
            continue
        if process.returncode:
            raise SystemExit(f"prepare ended with {process.returncode} after {done} kills")
        break
    return {
        "sigkills": done,
        "seconds_in_all": time.perf_counter() - began,
        "same_bytes": _digests(out) == _digests(folder / "undisturbed"),
        "left_behind": [path.name for path in folder.glob("killed.*")],
    }


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


if __name__ == "__main__":
    main()
