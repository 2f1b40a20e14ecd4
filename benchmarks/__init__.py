"""Speed and memory of the core, measured on this machine: see ``benchmarks/README.md``."""

from benchmarks.report import Report, Section, Table
from benchmarks.suite import BENCHMARKS, run

__all__ = ["BENCHMARKS", "Report", "Section", "Table", "run"]
