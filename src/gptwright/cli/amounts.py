"""Numbers on the command line as people write them: `10B`, `350M`, `0.5 million`, `8h`, `1d12h`."""

import math
from typing import Any

import click

from gptwright import units


class Amount(click.FloatRange):
    """A finite number above 0, with or without its scale: `350M`, `1e9`, `10 billion`."""

    _example = "1e9 or 1B"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that was typed."""
        try:
            number = self._number(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a number such as {self._example}.", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return float(super().convert(number, param, ctx))

    def _number(self, text: str) -> float:
        return units.parse_count(text)


class Hours(Amount):
    """Hours above 0: `8`, `8h`, `90min`, `1d12h`."""

    _example = "8, 90min or 1d12h"

    def _number(self, text: str) -> float:
        return units.parse_hours(text)


class WholeAmount(Amount):
    """A whole number above 0, with or without its scale."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number that was typed."""
        number = super().convert(value, param, ctx)
        if number != int(number):
            self.fail(f"{value} is not a whole number.", param, ctx)
        return int(number)
