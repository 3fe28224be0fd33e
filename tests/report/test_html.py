"""What is text stays text."""

from gptwright.report.html import Html, joined, table, tag


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    element = tag("p", "<b> & 'x'", tag("i", '"'), [None, "<"], title='"><script>', hidden=True, id=None)
    assert element == (
        '<p title="&quot;&gt;&lt;script&gt;" hidden>&lt;b&gt; &amp; &#x27;x&#x27;<i>&quot;</i>&lt;</p>'
    )
    assert isinstance(element, Html)


def test_a_list_of_parts_is_one_after_the_other() -> None:
    assert joined([tag("br"), "a", [tag("b", "c")]]) == "<br>a<b>c</b>"


def test_a_table_names_its_columns_and_rows() -> None:
    made = table("sizes", ["name", "bytes #"], [(True, ["<a>", "1"])])
    assert '<th scope="col" class="number">bytes </th>' in made
    assert '<tr class="changed"><th scope="row">&lt;a&gt;</th><td class="number">1</td></tr>' in made
    assert 'aria-label="sizes"' in made
