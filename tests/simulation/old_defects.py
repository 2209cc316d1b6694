"""Old defects, as edits that put each of them back into the present code (`mutations.py`).

`seen`: the commit that fixed it, or the review that described it. `now` is text of the present code, which occurs once in its
file; `before` takes its place. If code has moved since, `before` acts as the old code.
"""

from __future__ import annotations

from dataclasses import dataclass

FOLDER, LEASE, LEDGER, OPENING, SETTLE, SUBMISSIONS = (
    f"orchestrator/onnode/set/{name}.py"
    for name in ("folder", "lease", "ledger", "opening", "settle", "submissions")
)
EVENTS, FILES, JOBS, WAITING = (
    f"orchestrator/onnode/kernel/{name}.py" for name in ("events", "files", "jobs", "waiting")
)
ATTEMPT, LOGS, REPORTS, CHECKS, SET_JOB, GROUP, JOB, SLURM, STEP, STORAGE = (
    f"orchestrator/onnode/loop/{name}.py"
    for name in (
        "attempt", "attempt_logs", "attempt_reports", "checks", "set_job", "group", "job", "slurm", "step", "storage",
    )
)  # fmt: skip
JUDGE_LEASE, PLACE, OUTCOME, QUEUE, JOB_STATE, SILENCE = (
    f"orchestrator/onnode/policy/{name}.py"
    for name in ("lease", "place", "outcome", "queue", "job_state", "hang")
)
READING = "orchestrator/simulation/storage_reading.py"
SUBMIT, CANCEL = "orchestrator/runset/submit.py", "orchestrator/runset/cancel.py"
SETS, SCORE_LEDGER = "orchestrator/evidence/sets.py", "orchestrator/evidence/ledger.py"


STATES_LOST = (
    (
        "            if not last.done:  # states lost, result present\n"
        "                last = self._rebuilt(run, last)\n"
    ),
    "            pass\n",
)
"""The rebuilding of a run's states, and the code before."""
MASKED = (
    "masked: the end of an attempt is in the ledger, and its log is read, before the result decides"
)


@dataclass(frozen=True)
class Edit:
    """`before` in the place of `now`, which occurs once in `file`."""

    file: str
    now: str
    before: str


@dataclass(frozen=True)
class Defect:
    """A defect, and the edits that put it back.

    `why_not`: why the campaign finds it rarely or never; "" if it does. `likely`: expressions for events or shapes of sets that
    probably find it; such seeds are played first.
    """

    name: str
    what: str
    seen: str
    edits: tuple[Edit, ...]
    why_not: str = ""
    likely: tuple[str, ...] = ()


def one(
    name: str,
    what: str,
    seen: str,
    file: str,
    now: str,
    before: str,
    why_not: str = "",
    likely: tuple[str, ...] = (),
) -> Defect:
    """Return a defect of one edit."""
    return Defect(name, what, seen, (Edit(file, now, before),), why_not, likely)


RECORDED = Edit(
    SETTLE,
    "        return sorted({*self._folder.attempts(run), *self._recorded.get(run, ())})\n",
    "        return self._folder.attempts(run)\n",
)
"""The attempts on record whose folders are lost, and the code before."""


DEFECTS = [
    # ---- leases ----
    one(
        "beat-without-mount",
        "a log folder that is not mounted for longer than a beat was taken for a set that another job has: the job ended",
        "94f5ae7",
        LEASE,
        "                if not self._world.files.is_folder(self.path.parent):\n"
        "                    return True  # not mounted now: nobody can have taken it\n",
        "",
        likely=("not mounted",),
    ),
    one(
        "files-of-killed-takers",
        "files of processes that were killed while they took a lease stayed",
        "e7b0932",
        FOLDER,
        ("    with suppress(OSError):\n        remove_unfinished(layout.loop_lock, world)\n"),
        "",
        likely=("a (resume|cancel) is killed", "limit='0:15"),
    ),
    one(
        "release-of-any-lock",
        "a loop that came back after its job had ended removed the lock of its successor",
        "faults review F4, V3",
        LEASE,
        "            if self.mine:\n                self._world.files.remove(self.path)\n",
        "            self._world.files.remove(self.path)\n",
        likely=("batch host freezes", "idle=1", "in run"),
    ),
    one(
        "unfenced-loop",
        "a loop that came back after its job had ended rewrote attempts of its successor: nothing asked whose the set is",
        "faults review F4, V3",
        FOLDER,
        "        if self.lease is None or not self.lease.mine:\n",
        "        if self.lease is None:\n",
        likely=("batch host freezes", "idle=1", "in run"),
    ),
    one(
        "unfenced-job-record",
        "a loop that lost its set wrote its own end into the record of the job",
        "9c92af3",
        SET_JOB,
        "        if not self.folder.is_mine:\n            return self.folder.is_lost\n",
        "",
        likely=("batch host freezes", "idle=1", "in run"),
    ),
    one(
        "lock-from-the-future",
        "a beat of a clock that was set back meanwhile never got old: nobody could take the set",
        "0ca320b; security review L7",
        LEASE,
        "    if touched - now > BEAT_S:  # of a clock that was set back meanwhile: it counts from now on\n"
        "        with suppress(OSError):\n            world.files.touch(path)\n        touched = now\n",
        "",
        likely=("clock of the storage is set back (at|in)", "loop is killed|host dies"),
    ),
    one(
        "beats-by-the-own-clock",
        "how old a beat is was measured with the clock of whoever looks, not with that of the file server",
        "aee345f; security review H1",
        LEASE,
        "        now = server_now(path.parent, world)\n",
        "        now = world.wall_ms() / 1000\n",
    ),
    one(
        "not-seen-is-gone",
        "a holder whose job the scheduler does not show counted as gone at once: two jobs worked on one set",
        "security review H1",
        JUDGE_LEASE,
        "    if left_s > 0:\n        return HolderVerdict(WAIT, age, left_s)\n",
        "",
        why_not="a loop whose job Slurm has ended loses its nodes and closes within seconds, before a successor starts",
        likely=("batch host is cut off and", "idle=1"),
    ),
    one(
        "no-answer-is-gone",
        "a scheduler that does not answer was taken for one that knows no such job",
        "security review H1",
        JOBS,
        '    return "" if status > 0 and UNKNOWN_JOB in ask(argv, seconds, errors=True)[1] else "?"',
        '    return ""',
        why_not="masked: a holder must be silent for 90 s as well (policy/lease.py), and a loop that comes back later finds its set taken",
        likely=("Slurm does not|Slurm loses", "set is resumed|loop is stopped"),
    ),
    Defect(
        "half-a-lock",
        "a lock was made before its content was certain: a full disk left an empty one, which never got stale",
        "faults review F5, V6",
        (
            Edit(
                FILES,
                (
                    "    try:\n"
                    "        files.link(source, target)\n"
                    "    except OSError as error:\n"
                    "        if is_same(source, target, files):  # the server's reply was lost\n"
                    "            return True\n"
                    "        if isinstance(error, FileExistsError):\n"
                    "            return False\n"
                    "        try:  # without hard links: the next best exclusive operation\n"
                    "            files.create(target, files.read_bytes(source))\n"
                    "        except FileExistsError:\n"
                    "            return False\n"
                ),
                (
                    "    try:\n"
                    "        files.create(target, b'')\n"
                    "    except FileExistsError:\n"
                    "        return False\n"
                    "    files.write(target, files.read_bytes(source))\n"
                ),
            ),
            Edit(
                JUDGE_LEASE,
                "    if same_kernel(holder, viewer) and seen.process is not None:\n",
                '    if holder.token == "?":\n'
                '        return HolderVerdict(ALIVE, "process 0 on an unknown host")\n'
                "    if same_kernel(holder, viewer) and seen.process is not None:\n",
            ),
        ),
        likely=("storage is (full|over)", "limit='0:15"),
    ),
    one(
        "drop-without-a-guard",
        "two jobs that found the lock of a dead one could both get the set",
        "a9867fe",
        LEASE,
        "        if not self._linked(mine, guard):\n"
        "            taker = look(guard, self.me, self._sees, self._stale_s, self._world)\n"
        "            if taker is not None and taker[1].gone:\n                files.remove(guard)\n            return False\n",
        "        files.remove(self.path)\n        return True\n",
        why_not="rare: of 23 sets in which two people resume at once after a resume that was killed, two show it",
        likely=(r"next resume is killed at its step [1-5]\d",),
    ),
    one(
        "lock-of-the-living-removed",
        "a process that could not link a lock's file removed the lock of its holder",
        "make sim, seed 18057593",
        FILES,
        "            files.create(target, files.read_bytes(source))\n        except FileExistsError:\n            return False\n",
        "            files.create(target, files.read_bytes(source))\n        except FileExistsError:\n            return False\n"
        "        except OSError:\n            files.remove(target)\n            raise\n",
        why_not="the storage must fail, or a process stand still, within two of some 80 steps while another has the lock",
        likely=("storage fails now and then", ""),
    ),
    one(
        "removed-as-dead",
        "a process that stood still while it took a lock failed: its file had been removed as a dead process's",
        "make sim, seed 18057593",
        LEASE,
        "            with suppress(FileExistsError):\n                files.create(mine, self._content)\n"
        "            return linked(mine, target, files)\n",
        "            raise\n",
        why_not="rare: of 80,000 sets one showed it: a command must stand still between two of some 80 steps",
        likely=(r"(resume|cancel) is stopped at its step [56]\d",),
    ),
    # ---- the ledger ----
    one(
        "ledger-not-confirmed",
        "a holder of the ledger's lock that stood still wrote what it had read before another took over",
        "508d3c0",
        LEDGER,
        "            if not lease.mine:  # it stood still: its reading may be outdated\n                continue\n",
        "",
        why_not="rare: a command must stand still between two of some 80 steps while a job of its set writes to the ledger",
        likely=(
            r"the (loop|set|next resume) is (stopped in|cancelled twice|given twice)|(resume|cancel) is stopped at its step",
            "",
        ),
    ),
    one(
        "result-on-record-twice",
        "a result was on record twice if the job was killed before it was published",
        "e7b0932",
        FOLDER,
        "            self.record_that(*new, published, once=True)\n",
        "            self.record_that(*new, published)\n",
        likely=(
            r"loop is killed in (3[4-9]|4\d) steps at the end of|now and then for the loop.* (at the end of|in) run",
        ),
    ),
    one(
        "end-on-record-twice",
        "the end of an attempt was on record twice if the states found no room at first",
        "e7b0932",
        FOLDER,
        "            self.record_that(ended, once=True)\n",
        "            self.record_that(ended)\n",
        likely=("now and then for the loop.* in run",),
    ),
    one(
        "cancel-on-record-twice",
        "two cancels at the same time were two records: what is on record was looked up without the lock",
        "f2d0108",
        SUBMISSIONS,
        "    head = ledger.append(layout.root, new, job=job, cluster=cluster, once=True, world=world)\n",
        "    entries, _ = ledger.read(layout.root, world.files)\n"
        "    if any((one.kind, one.data) == new for one in entries):\n"
        "        return replace(submission, ledger=ledger.head(entries))\n"
        "    head = ledger.append(layout.root, new, job=job, cluster=cluster, world=world)\n",
        likely=("cancelled twice in run",),
    ),
    one(
        "clock-step-is-a-problem",
        "a clock that was set back by more than a day made `audit --only ledger` fail for ever",
        "ab8fe73; third faults review N12",
        SCORE_LEDGER,
        "        expected, before = max(expected, entry.number + 1), entry.hash\n",
        "        if index and entry.time_ms < entries[index - 1].time_ms - CLOCK_STEP_MS:\n"
        '            yield Mismatch(entry.number, "", "says a time more than a day before the record before it")\n'
        "        expected, before = max(expected, entry.number + 1), entry.hash\n",
        likely=("clocks of all nodes",),
    ),
    # ---- the set's folder ----
    Defect(
        "result-replaced",
        "a published result was replaced by that of another attempt",
        "faults review F3, V4",
        (
            Edit(
                FOLDER,
                (
                    "            if files.has_name(result):\n"
                    "                raise FolderError(\n"
                    '                    f"{result} is there already; a published result is never replaced"\n'
                    "                )\n"
                    "            # A job"
                ),
                "            # A job",
            ),
            Edit(
                FOLDER,
                (
                    "        try:\n"
                    "            self.files.link(temporary, result)  # fails if it exists already\n"
                    "        except OSError as error:\n"
                    "            if is_same(temporary, result, self.files):\n"
                    "                pass  # the server's reply was lost\n"
                    "            elif self.files.has_name(result):\n"
                    '                problem = f"{result} is there already; a published result is never replaced"\n'
                    "                raise FolderError(problem) from error\n"
                    "            else:\n"
                    "                self.files.rename(temporary, result)  # a file system without hard links\n"
                ),
                "        self.files.rename(temporary, result)\n",
            ),
            Edit(SETTLE, *STATES_LOST),
        ),
        why_not=MASKED,
        likely=("a file of the set", "limit='0:15"),
    ),
    one(
        "run-state-not-rebuilt",
        "the state of a run that was lost or emptied was left so: the run counted as missing, and was run again",
        "faults review F3, V4",
        SETTLE,
        "        if folder.run_state(run, strict=True) != last:\n",
        "        if folder.run_state(run) != last and (not found or folder.run_state(run) is not None):\n",
        likely=("a file of the set", "limit='0:15"),
    ),
    one(
        "result-without-its-state",
        "the states of a run with a published result were lost: it was run again",
        "faults review V4",
        SETTLE,
        *STATES_LOST,
        why_not=MASKED,
        likely=("a file of the set", "limit='0:15"),
    ),
    one(
        "lost-result-stays-lost",
        "a result that was lost, of a run that was done, was not published again",
        "9c92af3",
        SETTLE,
        "        elif last.done:\n            last = self._published_again(last)\n",
        "",
        likely=("set is lost", "limit='0:15"),
    ),
    Defect(
        "set-described-anew",
        "a job whose set.json was lost made a new one, with another root seed",
        "faults review F7, V5",
        (
            Edit(
                OPENING,
                (
                    "        if record is None and declared is None:\n"
                    "            if SetWalk(layout.root, files, raise_if_away).runs() or entries:\n"
                    '                problem = f"{layout.set_file} is missing, and the set has runs"\n'
                    '                raise FolderError(f"{problem}; put it back, or start a new set")\n'
                ),
                "        if record is None:\n",
            ),
            Edit(
                OPENING,
                "    if declared is not None and plan != (declared.nexp, declared.root_seed):\n",
                "    if declared is not None and record.nexp != declared.nexp:\n",
            ),
            Edit(
                SUBMIT,
                "        run_set = _restore(run_set, world)\n",
                "",
            ),
        ),
        likely=("set is lost", "(job|loop) is|reservation"),
    ),
    Defect(
        "empty-declaration",
        "a set whose set.json was emptied could not be resumed: there was no second copy of what declares a set",
        "faults review F8",
        (
            Edit(
                SUBMIT,
                ("        run_set = _restore(run_set, world)\n"),
                "",
            ),
            Edit(
                OPENING,
                (
                    "        elif declared is not None and not isinstance(record, SetRecord):\n"
                    "            record = declared\n"
                    "            records.write(record, layout.set_file, files=files)\n"
                ),
                "",
            ),
        ),
        likely=("set is emptied", "(job|loop) is|reservation"),
    ),
    one(
        "damaged-attempt-without-seed",
        "an attempt whose state was damaged was closed without its seed and its nodes",
        "9c92af3",
        SETTLE,
        "            state = self._as_left(run, attempt)\n",
        '            state = RunRecord(run=run, attempt=attempt, state="running")\n',
        likely=("a file of the set", "limit='0:15"),
    ),
    one(
        "attempt-without-a-state",
        "an attempt whose state was lost was passed over, and stayed without one",
        "9c92af3",
        SETTLE,
        (
            '        if state is None and ("attempt", run, attempt) not in self._known:\n'
            "            try:\n"
            "                self._files.remove_folder(path.parent)\n"
            "                return None\n"
        ),
        (
            "        if state is None:\n"
            "            try:\n"
            "                with suppress(OSError):\n"
            "                    self._files.remove_folder(path.parent)\n"
            "                return None\n"
        ),
        likely=("set is lost",),
    ),
    Defect(
        "attempt-removed-at-the-second-try",
        "a second try to write an attempt's states removed its folder, which was on record: the next job used its number again",
        "seed 27155374",
        (
            Edit(FOLDER, "            if is_new and self.is_mine:", "            if self.is_mine:"),
            RECORDED,
        ),
        why_not="rare: three of some 60 calls must fail, or be the last, in this order",
        likely=("storage fails for the loop in", "the loop is killed in"),
    ),
    Defect(
        "attempt-recorded-after-its-removal",
        "a folder without a state was removed, the reply was lost, and the attempt put on record: the next one used its number",
        "sequences of faults in a loop",
        (
            Edit(
                SETTLE,
                "            except FileNotFoundError:  # the server's reply was lost\n                return None\n",
                "",
            ),
            Edit(
                SETTLE,
                "                raise_if_away(path, error)\n        if not isinst",
                "                pass\n        if not isinst",
            ),
            Edit(
                SETTLE,
                "        make_below(self._layout.root, path.parent, self._files)\n        self._folder.write(ended",
                "        self._folder.write(ended",
            ),
            RECORDED,
        ),
        why_not="rare: a loop must die in one of six of its 700 calls, and the next one miss a reply to its first removal",
        likely=("loses a reply to the next loop", "the next loop is killed"),
    ),
    one(
        "attempt-begun-twice",
        "an attempt that was on record, and whose state was lost before a node had logged, was begun once more",
        "make sim, seed 776",
        SETTLE,
        '        if state is None and ("attempt", run, attempt) not in self._known:\n',
        "        if state is None:\n",
        why_not="rare: an attempt's state must be lost in the seconds between its begin and a node's first line",
        likely=("set is lost",),
    ),
    one(
        "begin-on-record-twice",
        "an attempt whose begin had to be repeated for want of storage was on record twice",
        "make sim, calls of storage that fail now and then",
        FOLDER,
        "        self.record_that(ledger.attempt_started(state), once=True)",
        "        self.record_that(ledger.attempt_started(state))",
        likely=("now and then for the loop.* (in|before|at the end of) run",),
    ),
    Defect(
        "attempt-removed-after-its-record",
        "an attempt whose record had come with an error was removed, and the next job began another with its number",
        "make sim, seed 22006160",
        (
            Edit(
                FOLDER,
                "        self.record_that(ledger.attempt_started(state), once=True)",
                """        try:
            self.record_that(ledger.attempt_started(state), once=True)
        except OSError:
            self.files.remove_tree(attempt)
            raise""",
            ),
            RECORDED,
        ),
        why_not="rare: the job's storage must fail in one of a few calls, and stay away until the job gives up",
        likely=("storage fails for the loop in", "storage is (over quota|full|away)"),
    ),
    Defect(
        "failed-read-is-missing",
        "one read of a state that failed when a job began was taken for a damaged state: a run with a result was repeated",
        "make sim, seed 76",
        (
            Edit(
                FOLDER,
                ("        state = self.run_state(run, strict=True)\n"),
                ("        state = self.run_state(run)\n"),
            ),
            Edit(
                SETTLE,
                (
                    "        state = records.read(RunRecord, path, self._files, strict=True)\n        if state is None"
                ),
                (
                    "        state = records.read(RunRecord, path, self._files)\n        if state is None"
                ),
            ),
            Edit(
                SETTLE,
                "            rank: last_status(log, files=self._files, strict=True) for rank, log in logs.items()\n",
                "            rank: last_status(log, files=self._files) for rank, log in logs.items()\n",
            ),
            Edit(
                FOLDER,
                "        return self._walk.attempts(run)\n",
                "        return SetWalk(self.layout.root, self.files, lambda *_: None).attempts(run)\n",
            ),
        ),
        why_not="rare: one of some 170 calls of a job must fail that follows a killed one: five of 845 sets made for it show it",
        likely=(r"fails for the next loop at its step (9\d|1[0-4]\d)", "limit='0:15"),
    ),
    one(
        "locked-out-of-its-ledger",
        "a job whose storage failed while it released the ledger waited for itself, and gave up",
        "make sim, calls of storage that fail once",
        LEASE,
        "        world.abandoned.add((path, token))\n",
        "        pass\n",
        likely=("the storage fails for the (next )?loop",),
    ),
    one(
        "locked-out-by-a-lost-reply",
        "a job waited for itself after its link to the ledger's lock was made, and the reply was lost with the next one",
        "make sim, seed 24006740",
        LEASE,
        "            self._world.abandoned.add((target, self.me.token))\n",
        "",
        why_not="rare: of two calls in a row the first must lose its reply and the second fail",
        likely=("the storage loses replies", "storage fails now and then for the loop"),
    ),
    one(
        "last-state-not-waited-for",
        "a complete set looked lost for good if its storage was full when its last run had ended",
        "make sim, seed 82",
        STORAGE,
        '        if job.write(state, reason) or state != "complete" or is_last:\n',
        '        if job.write(state, reason) or state == "complete" or is_last:\n',
        why_not="rare: the last result awaits the storage just before, so the storage must fail between the two writes",
        likely=(r"storage is (full|over|read).* at the end of run 3",),
    ),
    one(
        "another-ones-result",
        "an attempt that missed its target took the result of another attempt for its own",
        "9c92af3",
        SETTLE,
        "        elif any(stops.values()) and self._is_result_of(state):\n",
        "        elif any(stops.values()) and self._files.exists(self._layout.result(run)):\n",
        why_not="masked: the end of an attempt is in the ledger, and its log is read, before the result decides",
        likely=("loop is killed|batch host|requeue",),
    ),
    one(
        "away-is-missing",
        "storage that did not answer was taken for a result that is missing",
        "e234db4",
        READING,
        "        return self.state(path) is not None\n",
        "        try:\n            return self.state(path) is not None\n        except OSError:\n            return False\n",
        why_not="of some 140 calls of a beginning job one of three must fail, and none before it: about one in 5,000 seeds does that",
        likely=(r"fails for the next loop at its step (9\d|1[0-4]\d)", "limit='0:15"),
    ),
    one(
        "unread-log-is-no-result",
        "a good run was repeated if its storage failed while its log was read for a result that no node had reported",
        "make sim, seed 5001412",
        LOGS,
        "    stops = {node: last_status(log, files=files, strict=True) for node, log in logs.items()}\n",
        "    stops = {node: last_status(log, files=files) for node, log in logs.items()}\n",
        why_not="one call of storage must fail in a run whose result is not reported: about one in 15,000 seeds does that",
        likely=("speaks for another node.* at the end of run",),
    ),
    one(
        "unread-run-is-not-compared",
        "another image was taken for the same experiment if the storage failed while the states of earlier runs were read",
        "found by reading, after seed 5001412",
        FOLDER,
        "        states = (self.run_state(run, strict=True) for",
        "        states = (self.run_state(run) for",
        why_not="of the calls of a beginning job the right one must fail just when the image has moved",
        likely=("the storage fails for the next loop at its step",),
    ),
    one(
        "lost-job-is-waited-for",
        "a complete set whose job's state was lost was shown as lost or cancelled, also after `resume`",
        "found by `make faults`, after 684b765",
        SETS,
        "        return (self.job is None or self.job.final) and self.has_every_run\n",
        "        return self.job is not None and self.job.final and self.has_every_run\n",
    ),
    one(
        "temporary-files-stay",
        "temporary files of killed writers stayed anywhere but in the folders of runs",
        "893a756; third faults review N10",
        FOLDER,
        "    folders = [layout.root, layout.jobs, layout.preflight, *_below(layout.nodes, files)]\n",
        "    folders = list[Path]()\n",
        likely=(r"(loop is killed in|next loop is killed).* (in|at the end of|before) run",),
    ),
    one(
        "second-close-refused",
        "a close that had published the result and found no room for the states was refused the second time",
        "a42e0e4",
        STORAGE,
        "        job.folder.close(state, None if published else rank)\n",
        "        job.folder.close(state, rank)\n",
        why_not="a loop takes no time between two calls: only the last block of a full disk tells one from the next",
        likely=("now and then for the loop.* (at the end of|in) run|fails for the loop in",),
    ),
    one(
        "result-of-rank-0-only",
        "good runs were thrown away when another node than the first one logs",
        "faults review F2, V2",
        OUTCOME,
        "    ranks = [rank for rank, node in enumerate(attempt.ranks) if attempt.stops.get(node)]\n",
        "    ranks = [rank for rank, node in enumerate(attempt.ranks) if attempt.stops.get(node) and not rank]\n",
    ),
    one(
        "settled-by-rank-0-only",
        "a finished run of a killed job was repeated when another node than the first one logs",
        "faults review F2, V2",
        SETTLE,
        ('        ranks = self._folder.ranks(run, attempt, ".log")\n        logs = {rank'),
        ('        ranks = self._folder.ranks(run, attempt, ".log")[:1]\n        logs = {rank'),
        likely=("(loop is killed|host dies|is requeued).* at the end of",),
    ),
    # ---- submissions ----
    one(
        "submission-never-settled",
        "a submission whose controller was killed before the answer stayed `intended`, also in a complete set",
        "1a382b3; faults review F9, third faults review N6",
        FOLDER,
        (
            "            with suppress(OSError):\n"
            "                settle_own(self.layout, self.job_id, self.lease.me.cluster, self.world)\n"
        ),
        "",
        why_not="rare: a resume must be killed between its request and its record, and no later command settle it",
        likely=("next resume is killed at its step [345].", "limit='0:15"),
    ),
    Defect(
        "submission-over-another",
        "a resume that stood still while another finished the set wrote over its submission, or left one of its own open",
        "seed 3128063",
        (
            Edit(SUBMISSIONS, ', new=submission.state == "intended")', ")"),
            Edit(
                SUBMIT,
                "        lock.confirm()\n        if grows:\n",
                "        if grows:\n",
            ),
            Edit(
                SUBMIT,
                "    except SetError:\n        _withdraw(run_set, record, world)\n        raise\n",
                "    except SetError:\n        raise\n",
            ),
        ),
        why_not="rare: of 128,000 sets one showed it: a resume must stand still at a few of its steps until the set has ended",
        likely=(r"resume is stopped at its step [23]\d",),
    ),
    one(
        "cancel-waits-for-nothing",
        "cancel waited for a job of a submission that had ended, or that never came to be",
        "f1f2d95",
        CANCEL,
        (
            "    if evidence.awaited and not asked[-1].settled:\n"
            "        if held := held_by(run_set.layout.lock, viewer, {}, world):\n"
        ),
        (
            "    if asked and not asked[-1].settled:\n"
            '        raise SchedulerUnknown("a job may still appear")\n'
            "        if held := held_by(run_set.layout.lock, viewer, {}, world):\n"
        ),
        why_not="rare: a cancel must follow a resume that was killed before its job came to be",
        likely=("next resume is killed at its step",),
    ),
    one(
        "gone-by-an-empty-list",
        "a job that waited to start again was gone when squeue printed nothing: resume submitted a second one",
        "seed 15001529",
        SUBMIT,
        "    if any(job.alive for job in jobs.values()):\n        return jobs\n    evidence",
        "    if jobs is not None:\n        return jobs\n    evidence",
        why_not="rare: of 20,000 sets one showed it: a job must wait to start again, unheard of, when a resume gets an empty answer",
        likely=("empty answers.*(twice|requeued)",),
    ),
    one(
        "jobs-by-their-clocks",
        "which job of a set is the last one went by the clocks of batch hosts: a complete set looked cancelled",
        "5e2fb16",
        SETS,
        "        self.jobs = self._in_order(jobs)\n",
        "        self.jobs = jobs\n",
        why_not="rare: the clock of a batch host must step back between two jobs, the last of which completes the set",
        likely=("clock of node 1", "batch host dies|node 1 dies"),
    ),
    # ---- a job ----
    one(
        "two-lives-one-standing",
        "a job that Slurm starts again was replayed with the standing of its first life",
        "9630c4d",
        PLACE,
        "        vars(group).update(vars(GroupState()))\n",
        "",
        likely=("requeued", "container|agent|training|fails"),
    ),
    one(
        "late-for-ever",
        "a clock that stepped in the only run with a result kept all later jobs from beginning another run",
        "42238c3",
        JOB,
        ('        if not job.status.run:\n            return ""\n'),
        "",
        likely=("loop is stopped|clock of node 1", "limit='0:15|resumed"),
    ),
    one(
        "too-late-begun",
        "a run was begun that the job's time limit could not hold",
        "b08e39a",
        JOB_STATE,
        "    return left_s - CLOSE_S >= needs_s\n",
        "    return True\n",
        likely=("limit='0:15",),
    ),
    one(
        "storage-not-waited-for",
        "storage that was full, read-only or away for a moment ended the job",
        "b08e39a",
        STORAGE,
        "        if problem.errno not in _PASSES or job.ending.has_come() or is_last:\n",
        "        if True:\n",
        likely=("storage is (full|over|read).* (in|at the end of) run",),
    ),
    one(
        "end-told-to-nobody",
        "a group of nodes that ended did not wake the others, which wait for what it gives back",
        "8fd1c32",
        WAITING,
        "            yield min(until) if len(going) == before else 0.0\n",
        "            yield min(until)\n",
        likely=("at_once=2",),
    ),
    one(
        "pre-empted-is-cancelled",
        "a pre-empted job said that somebody had cancelled it",
        "92aa371",
        SLURM,
        '    elif is_preempted or state == "PREEMPTED":\n',
        "    elif False:\n",
        likely=("pre-empted",),
    ),
    one(
        "spares-that-fail-again",
        "spares that had failed before were asked again and again: the job did not end",
        "ea6cf27",
        GROUP,
        "            is_clear = self._exclude_failed()\n",
        "            before = (0, {}) if self.state.failed else before\n            is_clear = self._exclude_failed()\n",
        why_not="masked: nodes that were set aside are no candidates any more (policy/place.py)",
        likely=("(containers do not start|refuses|fails a check).* for 33m", "limit='0:15"),
    ),
    # ---- nodes: who is out, and why ----
    one(
        "left-out-without-a-word",
        "a node that failed its checks while others could take its rank was left out without a record",
        "1008ac9",
        GROUP,
        "        if is_placed and (not self.state.failed or self._exclude_failed() or self.job.ending.state):\n",
        "        if is_placed:\n",
        likely=("fails a check",),
    ),
    one(
        "stopped-loop-blames-all",
        "a loop that had been stopped for a while took all its nodes for silent",
        "9c92af3",
        ATTEMPT,
        "                step.excuse(stalled, silence_s)\n",
        "                pass\n",
        likely=("loop is stopped for (3m|33m)",),
    ),
    one(
        "judged-before-it-is-heard",
        "a node that had stood still with the loop was given up before its waiting messages were read",
        "seed 11002403",
        STEP,
        "    return max(deadline, now + ARRIVE_S) if stalled_s > ARRIVE_S else deadline\n",
        "    return deadline\n",
        why_not="with a silence of four questions both have to stop within 20 ms of its end",
        likely=("the agent of node . is stopped",),
    ),
    one(
        "lost-reply-is-anothers-lock",
        "a lock whose reply the file server lost was taken for another process's",
        "read in review; a storage that loses replies",
        FILES,
        "        if is_same(source, target, files):  # the server's reply was lost\n",
        "        if False:\n",
        likely=("storage loses replies",),
    ),
    one(
        "lost-reply-is-anothers-result",
        "a result whose link's reply the file server lost was taken for an earlier one, and the set failed",
        "read in review; a storage that loses replies",
        FOLDER,
        "            if is_same(temporary, result, self.files):\n",
        "            if False:\n",
        likely=("storage loses replies",),
    ),
    one(
        "last-words-lost",
        "a node that srun names was taken for ended before its own last words had come",
        "9c92af3",
        STEP,
        "                self._ended[node] = due, reason\n",
        "                self._ended[node] = (due if message.is_cause else 0.0), reason\n",
        likely=("container of node|agent of node . is killed",),
    ),
    one(
        "ended-before-it-is-read",
        "a node whose last lines were unread while the loop asked Slurm was given up for the end of its step",
        "make sim, seed 18133250",
        STEP,
        "when <= self._checked or node == first",
        "when <= self._now() or node == first",
        why_not="rare: the loop must ask Slurm for half a second within the 20 ms between two ways of a node's end",
        likely=("batch host is cut off and the job is cancelled", "at_once=2"),
    ),
    one(
        "unread-markers-blame-nodes",
        "nodes were blamed for files that the batch host could not read while its own storage was away",
        "make sim, seed 18121209",
        CHECKS,
        "            raise_if_away(marker, error)\n",
        "",
        why_not="rare: the batch host's storage alone must be away until it has looked for the nodes' files for the last time",
        likely=("storage is (cut off on node 1|away)",),
    ),
    one(
        "cancelled-step-blames-all",
        "when a node could not be reached, srun ended the step on all others, and these were blamed",
        "347fead",
        STEP,
        "        if self._cancelled:\n            return\n",
        "",
        likely=("tasks do not start on",),
    ),
    one(
        "silent-in-the-gate",
        "nodes that waited for one that was lost before the run were blamed with it",
        "c5384f4",
        REPORTS,
        "        if self._waits_for_all:\n",
        "        if True:\n",
        likely=("(node . dies|agent of node . is killed|container of node . ends) .*before run",),
    ),
    one(
        "gate-waits-for-the-dead",
        "a node that was lost before a run was waited for as long as one that is alive: five minutes",
        "faults review V8",
        ATTEMPT,
        "        gone = [node for node in unanswered if group.record.is_gone(node)]\n",
        "        gone = [node for node in unanswered if node in self._gate.cannot_drop]\n",
        likely=("(node . dies|agent of node . is killed|container of node . ends) .*before run",),
    ),
    Defect(
        "gone-between-two-runs",
        "a node whose container had ended between two runs was asked in vain",
        "2284e4c",
        (
            Edit(
                ATTEMPT,
                "        self._gate.take_ended({node: failed[node][1] for node in self._ranks if node in failed})\n",
                "",
            ),
            Edit(
                ATTEMPT,
                "        gone = [node for node in unanswered if group.record.is_gone(node)]\n",
                "        gone = [node for node in unanswered if node in group.state.silent]\n",
            ),
        ),
        why_not="no time passes between two runs: only storage that is waited for at the end of a run makes room for the container's end",
        likely=(
            r"container of node .*at the end of run",
            "storage (is (full|over|read|away)|fails)",
        ),
    ),
    one(
        "ended-by-others",
        "an attempt whose nodes heard of the job's end before the loop did was a failure of the nodes",
        "56608b5",
        ATTEMPT,
        "            unanswered = yield from self._await_signal()\n",
        "            pass\n",
        likely=("job is (cancelled|pre-empted|requeued)|reservation", "in run"),
    ),
    one(
        "exit-0-before-run-stop",
        "a node that ended with 0 and without run_stop while others went on was not found",
        "33333b8",
        OUTCOME,
        "        blamed = _first_to_end(ended, few, len(ranks), errors, lasted)\n",
        "        blamed = []\n",
        likely=("exits early",),
    ),
    one(
        "too-many-words",
        "a node that says too much filled the disk with its events",
        "2366839",
        STEP,
        "        if self._sent[node] <= limit:\n",
        "        if self._sent[node] <= 10**9:\n",
        likely=("sends too much",),
    ),
    # ---- a run that hangs ----
    one(
        "hung-after-the-first-end",
        "a run was called hung when the only node that had printed ended first",
        "1734433",
        REPORTS,
        "        elif not reports.exits:  # else the others end soon; often only the first has printed\n",
        "        else:\n",
        likely=("(is stopped|exits early|is slow).*(in|at the end of) run",),
    ),
    one(
        "hang-after-run-stop",
        "a run in which one node hung after run_stop lasted until the run time-out",
        "faults review V8",
        ATTEMPT,
        "            is_late = bool(grace) and now >= grace\n",
        "            is_late = False\n",
        likely=("hangs|stopped|exits",),
    ),
    one(
        "no-hang-is-found",
        "a run that hangs lasted until the run time-out",
        "b08e39a",
        SILENCE,
        "        return 0 < self.limit_ms <= self.pulse.quiet_ms\n",
        "        return False\n",
        likely=("training hangs",),
    ),
    # ---- events ----
    one(
        "half-an-event",
        "half an event of a killed job took the first one of its second life with it",
        "cf21fb5",
        EVENTS,
        '        self._rest = bytearray(b"\\n" if self._file.size() else b"")\n',
        "        self._rest = bytearray()\n",
        likely=("the job is requeued",),
    ),
]
