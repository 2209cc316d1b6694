"""Values derived from a job's id."""

from __future__ import annotations

from orchestrator.onnode.kernel.jobs import port_base


def test_jobs_that_start_together_have_ports_of_their_own() -> None:
    """Two local ones have the same start, in clock ticks, and Slurm's ids are neighbours."""
    for one, other in (("local-4711-8702894", "local-4712-8702894"), ("4711", "4712")):
        assert abs(port_base(one) - port_base(other)) % 22_000 > 100
    assert port_base("") == 0
