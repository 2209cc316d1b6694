"""A set's picture that a notebook shows as facts and a table."""

from __future__ import annotations

from dataclasses import fields

from orchestrator.evidence.picture import SetPicture


class NotebookSet(SetPicture):
    __slots__ = ()

    def _repr_html_(self) -> str:
        from orchestrator.views.page import rendered
        from orchestrator.views.parts import FactList, Heading
        from orchestrator.views.sets import describe, run_table

        return rendered([Heading(self.set_id), FactList(describe(self)), run_table(self.runs)])


def for_notebook(picture: SetPicture) -> NotebookSet:
    return NotebookSet(**{item.name: getattr(picture, item.name) for item in fields(picture)})
