"""In CI a skip is a failure unless its reason is known; elsewhere it is a skip."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
HOOKS = (Path(__file__).parent / "skips_in_ci.py").read_text()
UNKNOWN = 'import pytest\ndef test_b(): pytest.skip("chromium is not installed")'
WHOLE_FILE = 'import pytest\npytest.skip("needs lightning", allow_module_level=True)'
KNOWN = 'import pytest\ndef test_b(): pytest.skip("real data is absent: set HMA_DATA")'


@pytest.fixture
def ended(pytester, monkeypatch):
    """Run a test that passes beside a file that skips, and return the exit code and the output."""

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(skipping, *arguments, ci):
        monkeypatch.setenv("CI", ci)
        pytester.makeconftest(HOOKS)
        pytester.makepyfile(test_passes="def test_a(): pass", test_skips=skipping)
        found = pytester.runpytest_inprocess(*arguments)
        return found.ret, found.stdout.str()

    return run


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["here", "xdist"])
@pytest.mark.parametrize("skipping", [UNKNOWN, WHOLE_FILE], ids=["test", "file"])
def test_a_skip_without_a_known_reason_fails_in_ci(ended, skipping, workers):
    code, said = ended(skipping, *workers, ci="true")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "not in ALLOWED_SKIPS" in said
    assert "test_skips.py" in said.split("not in ALLOWED_SKIPS")[1]


@pytest.mark.parametrize(("skipping", "ci"), [(KNOWN, "true"), (UNKNOWN, "")])
def test_other_skips_pass(ended, skipping, ci):
    code, said = ended(skipping, ci=ci)
    assert code == pytest.ExitCode.OK
    assert "1 skipped" in said
    assert "ALLOWED_SKIPS" not in said
