"""The bash script of a profile: the bundle's runtime_tunables.sh, also sent by `orchestrator
tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.resources import data_dir
from orchestrator.tuning.profile import TuningProfile, choose_profile, load_profile

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry

SCRIPT = "runtime_tunables.sh"


def tunables_script(profile: TuningProfile) -> bytes:
    """Return the script: the profile's settings as data, then the logic. Equal profiles give
    equal bytes."""
    from orchestrator.model.quoting import comment, quote

    name = comment(profile.name)
    head = [
        "#!/usr/bin/env bash",
        f"# Host settings for the time of a job, put back afterwards. Profile: {name} ({comment(profile.title)}).",
        *_USAGE,
        "# name, kind, `set` or `look`, target, wanted (accepted values, separated by |), need; separated by tabs",
        "KNOBS=(",
        *(f"  {quote(tunable.line)}" for tunable in profile.tunables),
        ")",
        "",
    ]
    return "\n".join(head).encode() + b"\n" + (data_dir("templates") / "tunables.sh").read_bytes()


_USAGE = """\
#
#   runtime_tunables.sh plan            what apply would change
#   runtime_tunables.sh apply OWNER     remember every value, then set; status 1 when a required knob does not hold
#   runtime_tunables.sh verify          compare with what is wanted; status 1 when a required knob does not hold
#   runtime_tunables.sh watch           the same for every line of its input, for who looks often
#   runtime_tunables.sh revert OWNER    put back what was there before the first owner came
#   runtime_tunables.sh revert-all      the same, whoever holds the settings
#   runtime_tunables.sh status          owners, remembered values, watchdog
#
# apply and revert need root (or the site's sudo prefix). Formats and rules: docs/tuning.md.
# shellcheck disable=SC2034,SC2154,SC2015,SC2317
""".splitlines()


def profile_for(entry: Entry) -> TuningProfile:
    """Return the profile of an entry: its site's, else that of the workload and round."""
    return load_profile(entry.site.tuning.profile or choose_profile(entry.workload, entry.round))
