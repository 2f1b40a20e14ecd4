"""The page of a table in a browser: it opens without a console message, texts are text."""

from html import unescape

from browser import needs_chromium, opened
from table_records import made_up_table, records_of

from hma.paper.report.page import page
from hma.paper.report.summary import summarise


@needs_chromium
def test_the_page_opens_without_a_message_and_runs_nothing(tmp_path):
    script = "<script>document.title='owned'</script>"
    table = made_up_table(title=script, notes=(script,), curves={"left": ("left", "right")})
    target = tmp_path / "page.html"
    target.write_text(page(summarise(table, "small", records_of(table), {})), encoding="utf-8")
    document, console = opened(target)
    assert console == []
    assert "<script" not in document
    assert f"<title>T9: {script} · hma report</title>" in unescape(document)
    assert f">{script}<" in unescape(document)
