"""HTML as values: text is escaped by its type, so that nothing from a run can become markup by accident.

A `str` is text and is escaped wherever it is put; only `Html`, which `tag` makes, goes in as it is.
"""

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "input", "br"})


class Html(str):
    """Markup that is safe to put into a page."""

    __slots__ = ()


# Text is escaped, markup is not; a list is its items one after the other, and None is nothing.
Child = str | Html | Iterable[str | Html | None] | None


def tag(element: str, /, *children: Child, **attributes: object) -> Html:
    """One element.

    Args:
        element: its name.
        children: texts, elements, lists of both; None is nothing.
        attributes: `class_` and `for_` lose their underscore, others get dashes for theirs; True is an
            attribute without a value, None and False are none.
    """
    told = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if element in VOID:
        return Html(f"<{element}{told}>")
    return Html(f"<{element}{told}>{joined(children)}</{element}>")


def joined(children: Iterable[Child]) -> Html:
    """Elements and texts one after the other."""
    parts = []
    for child in children:
        if isinstance(child, Html):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(escape(child))
        elif child is not None:
            parts.append(str(joined(child)))
    return Html("".join(parts))


def table(
    caption: str, columns: Iterable[str], rows: Iterable[tuple[bool, Iterable[str | Html]]], *, hint: str = ""
) -> Html:
    """A table that scrolls sideways by itself.

    Args:
        caption: what it holds.
        columns: names; one that ends in `#` is of numbers.
        rows: whether the row stands out, and its cells; the first is the row's name.
        hint: a sentence below the caption.
    """
    names = list(columns)
    numeric = [name.endswith("#") for name in names]
    head = [
        tag("th", name.removesuffix("#"), scope="col", class_="number" if right else None)
        for name, right in zip(names, numeric, strict=True)
    ]
    body = []
    for changed, cells in rows:
        first, *rest = cells
        others = [
            tag("td", cell, class_="number" if right else None)
            for cell, right in zip(rest, numeric[1:], strict=True)
        ]
        body.append(tag("tr", tag("th", first, scope="row"), others, class_="changed" if changed else None))
    return tag(
        "div",
        tag(
            "table",
            tag("caption", tag("span", caption)),
            tag("thead", tag("tr", head)),
            tag("tbody", body),
        ),
        tag("p", hint, class_="quiet") if hint else None,
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
