"""A disk that fails once, at any operation: the run ends right or says what to do, and the next one goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.reliability.damage import kind_of
from tests.reliability.faults import FAULTS, Fault, Operation, failing_disk, infect, operations, struck
from tests.reliability.figures import Trials
from tests.reliability.trials import FINE, RIGHT, Verdict, judge, run, run_here, run_in_child

SOME_FAULTS = ("stays full", "I/O error", "torn write", "torn write, killed", "lost rename, killed")
IN_TASKS = "spark, in tasks"


def roots(place):
    return [place.checkpoint, place.output]


def names_of(operation: Operation, place) -> list[str]:
    """What a message may say to tell where it happened."""
    path = operation.path
    return [path, path.rpartition("/")[2], path.rpartition("/")[0], str(place.checkpoint), str(place.output)]


def run_on(engine, place, control, fault):
    """Run on a disk that fails; on Spark only the driver's does."""
    if engine == "local":
        return run_in_child(place, failing_disk, control, roots(place), fault)
    return run_here(engine, place, failing_disk(control, roots(place), fault))


def run_infected(place, control, fault):
    """Run on Spark, where the disks of tasks fail: the flow's own function gets between them and theirs."""
    path = str(control)

    def parse(line):
        infect(path)
        return int(line)

    disk = failing_disk(control, roots(place), fault, only_others=True)
    return run_here("spark", place, disk, parse=parse)


def begin_again(place, control):
    for folder in place.work, control:
        shutil.rmtree(folder, ignore_errors=True)
    place.work.mkdir()


def clean_operations(engine, place, expected, control) -> list[Operation]:
    begin_again(place, control)
    ended = run_infected(place, control, None) if engine == IN_TASKS else run_on(engine, place, control, None)
    assert judge(ended, expected, ()).outcome == RIGHT, ended
    return operations(control)


def one_of_each(found: list[Operation], place) -> Iterator[Operation]:
    """The first and the last time that something is done to a kind of file."""
    seen: dict[tuple[str, str], list[Operation]] = {}
    for operation in found:
        seen.setdefault((operation.call, kind_of(place.work, operation.path)), []).append(operation)
    for same in seen.values():
        yield from {same[0].number: same[0], same[-1].number: same[-1]}.values()


def check_faults(engine, place, expected, control, cases):
    trials = {}
    for fault, operation in cases:
        begin_again(place, control)
        chosen = Fault(fault, operation.number)
        in_tasks = engine == IN_TASKS
        ended = run_infected(place, control, chosen) if in_tasks else run_on(engine, place, control, chosen)
        if (hit := struck(control)) is None:
            continue  # threads may change places: this time nothing like that came so late
        verdict = judge(ended, expected, names_of(hit, place))
        if verdict.outcome in FINE:
            after = judge(run("spark" if in_tasks else engine, place), expected, ())
            if after.outcome != RIGHT:
                verdict = Verdict(f"THEN {after.outcome}", f"{ended.told()[:200]}; and the next run: {after.told}")
        case = f"{fault} at operation {operation.number}: {hit.call} {kind_of(place.work, hit.path)}"
        trials.setdefault(fault, Trials(f"fault: {fault}", engine)).add(case, verdict)
    told = "\n".join(filter(None, (one.report() for one in trials.values())))
    assert not told, f"on {engine}:\n{told}"


def test_some_faults_of_every_kind(place, expected, tmp_path):
    found = list(one_of_each(clean_operations("local", place, expected, tmp_path / "control"), place))
    cases = [(fault, operation) for fault in SOME_FAULTS for operation in found if operation.can(fault)]
    check_faults("local", place, expected, tmp_path / "control", cases[::3])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_operation_fails_once(fault, place, expected, tmp_path):
    found = clean_operations("local", place, expected, tmp_path / "control")
    if fault == "slow":
        found = list(one_of_each(found, place))
    cases = [(fault, operation) for operation in found if operation.can(fault)]
    check_faults("local", place, expected, tmp_path / "control", cases)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if "killed" not in fault])
def test_every_kind_of_operation_of_sparks_driver_fails_once(fault, place, expected, tmp_path):
    """Deaths of a driver are in `test_kills.py`: this process is the driver here."""
    found = list(one_of_each(clean_operations("spark", place, expected, tmp_path / "control"), place))
    cases = [(fault, operation) for operation in found if operation.can(fault)]
    check_faults("spark", place, expected, tmp_path / "control", cases)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "slow"])
def test_every_kind_of_operation_of_sparks_tasks_fails_once(fault, place, expected, tmp_path):
    clean_operations(IN_TASKS, place, expected, tmp_path / "control")  # from then on the workers are infected
    found = list(one_of_each(clean_operations(IN_TASKS, place, expected, tmp_path / "control"), place))
    assert found
    cases = [(fault, operation) for operation in found if operation.can(fault)]
    check_faults(IN_TASKS, place, expected, tmp_path / "control", cases)
