"""The page of a table in a browser: it opens without a console message, texts are text."""

import re
import shutil
import subprocess
from html import unescape

import pytest
from table_records import made_up_table, records_of

from hma.report.table import page, summarise

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom",
]  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_opens_without_a_message_and_runs_nothing(tmp_path):
    script = "<script>document.title='owned'</script>"
    table = made_up_table(title=script, notes=(script,), curves={"left": ("left", "right")})
    target = tmp_path / "page.html"
    target.write_text(page(summarise(table, "small", records_of(table), {})), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", target.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert re.findall(r"CONSOLE.*", ran.stderr) == []
    assert "<script" not in ran.stdout
    assert f"<title>T9: {script} · hma report</title>" in unescape(ran.stdout)
    assert f">{script}<" in unescape(ran.stdout)
