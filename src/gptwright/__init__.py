"""gptwright plans, trains and honestly diagnoses small GPTs on the machine a person has.

    import gptwright

    gptwright.prepare("my-texts", out="data/mine", tokenizer="char")
    run = gptwright.train("shakespeare-char-cpu", dataset="data/mine", out_dir="out-mine").run
    print(gptwright.generate(run, "Once"))

The functions are those of `gptwright.api`, which is loaded when the first of them is used.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gptwright.api import compare, diagnose, generate, load, plan, prepare, train

__version__ = "0.1.0"
__all__ = ["compare", "diagnose", "generate", "load", "plan", "prepare", "train"]


class _Function:
    """A name of `gptwright.api`, looked up on use.

    `plan`, `diagnose` and `train` are rooms too. The import system writes a room into its package when it is
    imported; that is passed over, so that the name always means the function. `from gptwright.plan.plan
    import make_plan` does not go through it.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, package: ModuleType, owner: type) -> Any:
        return getattr(importlib.import_module("gptwright.api"), self.name)

    def __set__(self, package: ModuleType, value: object) -> None:
        """A room of the same name was imported."""


class _Package(ModuleType):
    compare, diagnose, generate, load = _Function(), _Function(), _Function(), _Function()
    plan, prepare, train = _Function(), _Function(), _Function()

    def __dir__(self) -> list[str]:
        """The functions too, so that a notebook completes them."""
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
