"""Nothing is skipped in silence: where ``CI=true``, a skip is a failure or on the list here."""

import os
import re

import pytest

ALLOWED_SKIPS = {
    "real data is absent": "others' data is not ours to publish; CI has it beside the checkout",
    "the paper's numbers are not at": "they lie beside that data",
    "SCIPY_ARRAY_API is not set": "scikit-learn's check of an input that we do not promise",
    "MemoryClassifier does not have a decision_function": "it has predict_proba, which is checked",
    "a GPU can compute|this machine has it": "the refusal is of machines without a GPU",
}
"""A pattern of the reason that a skip gives, and why CI may skip for it."""


def forbidden_skips(config):
    """Return what was skipped in CI for a reason that is not in ``ALLOWED_SKIPS``."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None:  # a worker leaves it to its controller
        return []
    skipped = [
        (report.nodeid, report.longrepr[2].removeprefix("Skipped: "))
        for report in reporter.stats.get("skipped", [])
    ]
    return [s for s in skipped if not any(re.match(allowed, s[1]) for allowed in ALLOWED_SKIPS)]


def pytest_sessionfinish(session):
    if forbidden_skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if found := forbidden_skips(config):
        terminalreporter.section("skipped in CI, not in ALLOWED_SKIPS of tests/skips_in_ci.py")
        for name, reason in found:
            terminalreporter.line(f"{name}: {reason}", red=True)
