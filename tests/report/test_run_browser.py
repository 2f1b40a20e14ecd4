"""The page in a browser: it opens from a file without a console message, labels are text."""

from html import unescape

from browser import needs_chromium, opened

from hma.report.run import write_page

pytestmark = needs_chromium


def test_the_page_opens_without_a_console_message(report, tmp_path):
    write_page(report, tmp_path / "report.html")
    document, console = opened(tmp_path / "report.html")
    assert console == []
    assert "All candidates on the same test rows" in document


def test_labels_that_look_like_scripts_are_shown_as_text(with_labels, tmp_path):
    label = "<script>document.title='owned'</script>"
    write_page(with_labels(label, "<b>bold</b>", "</style>"), tmp_path / "report.html")
    document, console = opened(tmp_path / "report.html")
    assert console == []
    assert "<title>made up · hma report</title>" in document
    assert "<script" not in document
    assert f">{label}<" in unescape(document)


def test_the_pages_policy_stops_a_request_and_this_test_would_see_it(report, tmp_path):
    page = tmp_path / "report.html"
    write_page(report, page)
    planted = '<img src="https://example.invalid/x.png"><script>document.title="owned"</script>'
    page.write_text(page.read_text().replace("</main>", planted + "</main>"))
    document, console = opened(page)
    assert len([line for line in console if "Content Security Policy" in line]) == 2
    assert "<title>made up · hma report</title>" in document
