"""Profiles as documents: the shipped profiles, and problems of wrong ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from programs import need
from pydantic import ValidationError

from orchestrator.errors import DescriptorError, UsageError
from orchestrator.model import Site, load_entry
from orchestrator.tuning.profile import (
    choose_profile,
    load_profile,
    profile_for,
    profile_names,
    profile_script,
)

KNOB = "  - {name: one, need: required, purpose: for a test, "


def write(folder: Path, rest: str, name: str = "mine") -> str:
    path = folder / f"{name}.yaml"
    path.write_text(f"kind: tuning\nname: {name}\ntitle: mine\nsource: here\n{rest}\n")
    return str(path)


def test_the_published_profile_is_the_published_script() -> None:
    settings = load_profile("published").settings
    wanted = {setting.name: (setting.target, setting.wanted) for setting in settings}
    cpus = "/sys/devices/system/cpu/cpu[0-9]*"
    assert wanted == {
        "amdgpu": ("amdgpu!", "loaded"),
        "cpu_idle_state2": (f"{cpus}/cpuidle/state2/disable", "1"),
        "cpu_governor": (f"{cpus}/cpufreq/scaling_governor", "performance"),
        "nmi_watchdog": ("/proc/sys/kernel/nmi_watchdog", "0"),
        "numa_balancing": ("/proc/sys/kernel/numa_balancing", "0"),
        "randomize_va_space": ("/proc/sys/kernel/randomize_va_space", "0"),
        "thp_enabled": ("/sys/kernel/mm/transparent_hugepage/enabled", "always"),
        "thp_defrag": ("/sys/kernel/mm/transparent_hugepage/defrag", "always"),
    }


def test_host_checks_change_nothing() -> None:
    checks = load_profile("host_checks").settings
    published = load_profile("published").settings
    assert len(checks) >= 8 and not any(check.changes for check in checks)
    names = [setting.name for setting in load_profile("recommended").settings]
    assert names == [setting.name for setting in (*published, *checks)]


def test_which_profile_a_workload_gets() -> None:
    assert choose_profile("flux1", "6.0") == choose_profile() == "recommended"
    assert choose_profile("builtin", "1.0") == "host_checks"
    site = Site.model_validate({"log_dir": "/x", "tuning": {"profile": "published"}})
    entry = load_entry("MI325X_08x08x32", "flux1", site=site)
    assert profile_for(entry).name == "published"
    assert profile_names() == ["host_checks", "published", "recommended"]


def test_a_profile_of_the_site_extends_ours(tmp_path: Path) -> None:
    knob = (
        KNOB.replace("one", "nmi_watchdog") + "kind: sysctl, key: kernel.nmi_watchdog, value: '1'}"
    )
    profile = load_profile(write(tmp_path, f"extends: [published]\nknobs:\n{knob}"))
    assert {setting.name: setting.wanted for setting in profile.settings}["nmi_watchdog"] == "1"
    assert len(profile.settings) == len(load_profile("published").settings)


NO_PATH = "is not a file or pattern below /proc or /sys"


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ("kind: file, path: /etc/passwd, value: x", f"6: knobs[0].path: '/etc/passwd' {NO_PATH}"),
        ("kind: file, path: /proc/self/root/tmp/x, value: x", NO_PATH),
        ("kind: file, path: '/proc/[0-9]*/cwd/x', value: x", NO_PATH),
        ("kind: file, path: /sys/../etc/passwd, value: x", NO_PATH),
        ("kind: file, path: '/sys/$(reboot)', value: x", NO_PATH),
        ("kind: file, value: x", "a setting of kind file needs the key path"),
        ("kind: sysctl, key: a.b, state: 2, value: x", "a setting of kind sysctl has no key state"),
        ("kind: sysctl, key: a.b", "needs either value (to be set) or any_of"),
        ("kind: cmdline, value: iommu=pt", "can only be checked"),
        ("kind: service, unit: x, value: stopped", "a service is active or inactive"),
        ("kind: service, unit: x.timer, value: active", "unit: 'x.timer' is not a service"),
        (
            "kind: sysctl, key: a.b, value: 'a|b'",
            "write several accepted values as the list any_of",
        ),
        ("kind: sysctls, key: a.b, value: '1'", "is not accepted; accepted: file, sysctl"),
        ("kind: sysctl, key: a.b, valeu: '1'", "knobs[0].valeu: unknown key"),
    ],
)
def test_wrong_settings(tmp_path: Path, knob: str, message: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        load_profile(write(tmp_path, f"knobs:\n{KNOB}{knob}}}"))
    assert message in str(caught.value) and re.search(r"mine\.yaml:\d+: ", str(caught.value))


@pytest.mark.parametrize("unit", ["irqbalance", "irqbalance.service"])
def test_a_service_may_be_named_as_a_unit(tmp_path: Path, unit: str) -> None:
    knob = f"{KNOB}kind: service, unit: {unit}, value: inactive}}"
    [setting] = load_profile(write(tmp_path, f"knobs:\n{knob}")).settings
    assert (setting.kind, setting.target) == ("service", "irqbalance"), "the script adds .service"


def test_two_settings_of_one_name(tmp_path: Path) -> None:
    knob = f"{KNOB}kind: cpu_governor, value: a}}\n"
    with pytest.raises(DescriptorError, match="the setting one is listed twice"):
        load_profile(write(tmp_path, f"knobs:\n{knob}{knob}"))


def test_a_file_next_to_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    knob = KNOB + "kind: sysctl, key: kernel.nmi_watchdog, value: '1'}"
    write(tmp_path, f"knobs:\n{knob}", "base")
    write(tmp_path / "elsewhere", "", "base")
    mine = write(tmp_path, "extends: [base.yaml]")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [setting.name for setting in load_profile(mine).settings] == ["one"]
    monkeypatch.chdir(tmp_path)
    assert load_profile("mine.yaml").settings == load_profile(mine).settings


def test_a_site_names_its_own_profile_by_an_absolute_path() -> None:
    for profile in ("published", "/shared/base.yaml"):
        site = Site.model_validate({"log_dir": "/x", "tuning": {"profile": profile}})
        assert site.tuning.profile == profile
    for profile in ("base.yaml", "base.yml", "./base", "a/b.yaml"):
        with pytest.raises(ValidationError, match="is not an absolute path"):
            Site.model_validate({"log_dir": "/x", "tuning": {"profile": profile}})
    with pytest.raises(ValidationError, match="is not a name"):
        Site.model_validate({"log_dir": "/x", "tuning": {"profile": "a b"}})


def test_a_circle_and_a_missing_one(tmp_path: Path) -> None:
    write(tmp_path, "extends: [b]", "a")
    write(tmp_path, "extends: [a]", "b")
    with pytest.raises(DescriptorError, match="extends itself"):
        load_profile(str(tmp_path / "a.yaml"))
    with pytest.raises(UsageError, match="no tuning profile choice"):
        load_profile("choice")


def test_the_script_is_clean(tmp_path: Path) -> None:
    path = tmp_path / "runtime_tunables.sh"
    script = profile_script(load_profile("recommended"))
    assert script == profile_script(load_profile("recommended"))
    path.write_bytes(script)
    done = subprocess.run([need("shellcheck"), path], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
