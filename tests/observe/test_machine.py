"""What the machine says of itself, from files as Linux writes them."""

import math

import pytest

from penstock.observe.machine import SystemCpu, Ticks, cgroup_limit, ticks


@pytest.mark.parametrize(
    ("written", "cores"),
    [("200000 100000\n", 2.0), ("150000 100000\n", 1.5), ("max 100000\n", math.inf), ("what?\n", math.inf)],
)
def test_a_control_group_limits_cores(tmp_path, written, cores):
    quota = tmp_path / "cpu.max"
    quota.write_text(written)
    assert cgroup_limit(quota) == cores


@pytest.mark.parametrize(("share", "cores"), [("250000", 2.5), ("-1", math.inf)])
def test_an_old_control_group_limits_cores(tmp_path, share, cores):
    quota, period = tmp_path / "quota", tmp_path / "period"
    quota.write_text(f"{share}\n")
    period.write_text("100000\n")
    assert cgroup_limit(tmp_path / "none", (quota, period)) == cores


def test_no_control_group_limits_nothing(tmp_path):
    assert cgroup_limit(tmp_path / "none", (tmp_path / "no", tmp_path / "neither")) == math.inf


def test_ticks_are_what_the_kernel_counts(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 1 20 300 40 5 6 7 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert ticks(stat) == Ticks(used=42, idle=340, stolen=7)
    stat.write_text("something else\n")
    assert ticks(stat) == ticks(tmp_path / "none") == Ticks()


def test_what_neighbours_take_is_no_idle_core(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 0 100 0 0 0 0 0 0\n")
    cpu = SystemCpu(stat)
    stat.write_text("cpu  130 0 0 150 0 0 0 20 0 0\n")
    assert cpu.share() == pytest.approx(0.5)
    assert cpu.share() == 0.0  # nothing has passed since
    stat.unlink()
    assert SystemCpu(stat).share() == 0.0
