"""A set's picture that a notebook shows as facts and a table."""

from __future__ import annotations

from dataclasses import fields

from orchestrator.evidence.picture import SetPicture


class NotebookSet(SetPicture):
    __slots__ = ()

    def _repr_html_(self) -> str:
        from orchestrator.views.page import rendered
        from orchestrator.views.parts import MOST_ROWS, Bullets, FactList, Heading
        from orchestrator.views.sets import describe, run_table

        # The page stays: no time left.
        facts = [(name, text) for name, text in describe(self) if name != "left"]
        runs, more = run_table(self.runs).first(MOST_ROWS)
        remarks = [Bullets([more])] if more else []
        return rendered([Heading(self.set_id), FactList(facts), runs, *remarks])


def for_notebook(picture: SetPicture) -> NotebookSet:
    return NotebookSet(**{item.name: getattr(picture, item.name) for item in fields(picture)})
