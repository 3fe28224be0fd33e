"""Diagnoses a log that was pasted into the page: the very same way as `gptwright diagnose FOLDER`.

Log and config are written into a folder of their own in the system's temporary place, diagnosed there by the
worker, and removed. Nothing leaves the machine.
"""

import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptwright.errors import RunError
from gptwright.facts import Value
from gptwright.record.stated import FACTS
from gptwright.report.live.diagnoser import Answer, Diagnoser


async def diagnose_pasted(diagnoser: Diagnoser, document: Any) -> Answer:
    """The diagnosis of `{"log": TEXT, "config": TEXT, "facts": {NAME: TEXT}}`; an error as an answer too."""
    try:
        log, config, facts = _parts(document)
    except RunError as error:
        return {"error": error.document()}
    with tempfile.TemporaryDirectory(prefix="gptwright-pasted-") as name:
        folder = Path(name)
        if log.strip():
            (folder / "log.txt").write_text(log, encoding="utf-8", errors="replace", newline="")
        if config.strip():
            place = "config.toml" if _is_toml(config) else "config.py"
            (folder / place).write_text(config, encoding="utf-8", errors="replace", newline="")
        answer = await diagnoser.ask(folder, facts, charts=True)
    said = answer.get("error")
    if said is not None:
        # The folder is nobody's business and gone already.
        for part, text in said.items():
            said[part] = text.replace(f"{folder}/", "").replace(str(folder), "the paste") if text else text
    return answer


def _parts(document: Any) -> tuple[str, str, Mapping[str, Value]]:
    """Log, config and facts of a request.

    Raises:
        RunError: it is not of that form.
    """
    if not isinstance(document, dict):
        raise RunError("the request is no JSON object")
    log, config, facts = document.get("log", ""), document.get("config", ""), document.get("facts", {})
    if not isinstance(log, str) or not isinstance(config, str) or not isinstance(facts, dict):
        raise RunError("log and config are texts, and facts an object")
    if not log.strip() and not config.strip():
        raise RunError("there is no log", fix="paste what the trainer printed, or drop its file on the page")
    unknown = [name for name in facts if name not in FACTS]
    if unknown:
        raise RunError(f"{unknown[0]!r} is no fact that is known here", fix=f"facts are {', '.join(FACTS)}")
    given = {name: value for name, value in facts.items() if isinstance(value, str | int) and value != ""}
    return log, config, given


def _is_toml(text: str) -> bool:
    """Whether a config is TOML; what both could be is read alike."""
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    return True
