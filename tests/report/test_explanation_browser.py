"""The page of an explanation in a browser: it has the policy of the others, texts are text."""

from browser import needs_chromium, opened

from hma.runs.explanation import Effect, NearRow, RowExplanation, SeenRow, as_page

EVIL = "<script>document.title='owned'</script>"


def page_of(text):
    return as_page(
        RowExplanation(
            description=text,
            answer=text,
            picture=None,
            explained=text,
            effects=(Effect("training row", "+1.00 points", text, text),),
            near=(NearRow(0.5, text, text),),
            near_of=3,
            seen=(SeenRow("training row", 0.25, text, text),),
            by_group=((text, 0.5),),
        )
    )


def test_every_text_of_an_explanation_is_escaped():
    page = page_of(EVIL)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 11
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page


@needs_chromium
def test_the_policy_of_an_explanation_stops_what_is_planted(tmp_path):
    path = tmp_path / "why.html"
    planted = '<img src="https://example.invalid/x.png"><script>document.title="owned"</script>'
    path.write_text(page_of("row").replace("</main>", planted + "</main>"), encoding="utf-8")
    document, console = opened(path)
    assert len([line for line in console if "Content Security Policy" in line]) == 2
    assert "<title>row · hma report</title>" in document
