"""From a system descriptor to a scored set of MLPerf Training runs on AMD Instinct clusters."""

__version__ = "0.1.0"
