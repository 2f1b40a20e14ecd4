"""The page in a browser: a row is typed, answered, taught, undone; with a token, a picture."""

import threading
from contextlib import contextmanager

import uvicorn
from browser import CHROMIUM, needs_chromium
from playwright.sync_api import expect, sync_playwright
from small_sources import images

from hma.runs import Run, train
from hma.serve.app import app_of
from hma.serve.server import listening
from hma.serve.service import Service
from hma.training import SilentProgress

pytestmark = needs_chromium
PATIENCE = 60_000
"""Milliseconds that a busy machine may take for an answer."""
SCRIPT = "<img src=x onerror=\"document.title='owned'\">"


@contextmanager
def served(service, token=None):
    """Serve in a thread; yield the address."""
    with listening("127.0.0.1", 0) as own:
        config = uvicorn.Config(app_of(service, token=token), log_level="warning")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{own.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def looked_at(address):
    """Open a tab; yield it with what went to the console and what was asked for."""
    console, requests = [], []
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.set_default_timeout(PATIENCE)
        tab.on("console", lambda message: console.append(message.text))
        tab.on("pageerror", lambda error: console.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(address, wait_until="load")
        yield tab, console, requests
        browser.close()


def test_a_row_is_typed_answered_taught_and_undone(service, rows):
    with served(service) as address, looked_at(address) as (tab, console, requests):
        expect(tab.locator("#name")).to_have_text("run")
        row = rows[2]
        for name in "abc":
            tab.get_by_label(name, exact=True).fill(str(row[name]))
        tab.get_by_label("town", exact=True).select_option(row["town"] or "")
        tab.get_by_role("button", name="Predict").click()
        said, bars = tab.locator("#said"), tab.locator("#bars")
        expect(said).not_to_be_empty()
        wanted = service.predict({"rows": [row], "texts": None, "images": None, "places": None})
        before, bars_before = wanted["predictions"][0]["answer"], bars.inner_text()
        expect(said).to_have_text(before)
        assert tab.locator("#voters li").count() > 3
        expect(tab.get_by_role("button", name="Undo")).to_be_disabled()

        tab.get_by_label("Right label").fill(SCRIPT)
        tab.get_by_role("button", name="Teach").click()
        expect(tab.locator("#status")).to_contain_text('send "new_classes": true')
        tab.get_by_label("Let a new class in").check()
        tab.get_by_role("button", name="Teach").click()
        expect(tab.locator("#status")).to_contain_text("Version 1: remembered 1 row")
        expect(said).not_to_have_text(before)
        expect(bars).to_contain_text(SCRIPT)
        expect(tab.locator("#voters li.taught")).to_contain_text(SCRIPT)

        tab.get_by_role("button", name="Undo").click()
        expect(tab.locator("#status")).to_contain_text("Version 2: version 0 answers again")
        expect(said).to_have_text(before)
        assert bars.inner_text() == bars_before
        expect(tab.get_by_role("button", name="Undo")).to_be_disabled()
        assert tab.title() == "run · hma serve"
        assert all(url.startswith((address, "data:")) for url in requests)
        assert [line for line in console if "400 (Bad Request)" not in line] == []


def test_an_unknown_row_says_so_and_the_last_row_of_a_class_goes_when_it_is_meant(folder, rows):
    service = Service(Run.open(folder), 0.8)
    with served(service) as address, looked_at(address) as (tab, _, _):
        for name in "abc":
            tab.get_by_label(name, exact=True).fill(str(rows[2][name]))
        tab.get_by_role("button", name="Predict").click()
        expect(tab.locator("#unknown")).to_be_visible()
        expect(tab.locator("#promised")).to_contain_text("80.0% of rows")
        tab.get_by_label("Right label").fill("odd")
        tab.get_by_label("Let a new class in").check()
        tab.get_by_role("button", name="Teach").click()
        expect(tab.locator("#said")).to_contain_text("odd")
        expect(tab.locator("#unknown")).to_be_hidden()
        tab.locator("#voters li.taught").get_by_role("button", name="Forget").click()
        expect(tab.locator("#status")).to_contain_text("the last row of 'odd'")
        tab.get_by_role("button", name="Do it all the same").click()
        expect(tab.locator("#status")).to_contain_text("Version 2: forgot 1 row")
        expect(tab.locator("#said")).not_to_contain_text("odd")
        expect(tab.locator("#confirm")).to_be_hidden()


def test_a_picture_is_uploaded_once_the_token_is_given(tmp_path):
    options, new = images(tmp_path)
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    service = Service(run)
    with served(service, "s3cret") as address, looked_at(address) as (tab, _, _):
        expect(tab.locator("#status")).to_contain_text("a token is missing")
        tab.get_by_label("Token").fill("s3cret")
        tab.get_by_role("button", name="Go on").click()
        tab.get_by_label("Image").set_input_files(f"{new}/blue/0.png")
        tab.get_by_role("button", name="Predict").click()
        expect(tab.locator("#said")).not_to_be_empty()
        assert tab.locator("#voters img").count() > 3
        tab.get_by_label("Right label").fill("red")
        tab.get_by_role("button", name="Teach").click()
        expect(tab.locator("#voters li.taught img")).to_have_count(1)
        tab.get_by_label("Or row of the source").fill("3")
        tab.get_by_role("button", name="Predict").click()
        expect(tab.locator("#what")).to_have_text(run_description(service, 3))


def run_description(service, place):
    source = service.own.source
    assert source is not None
    return source.describe(place)
