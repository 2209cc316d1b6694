"""The reading side of a set's folder: every command that shows something of a set reads it from
here.

files one bounded reader of JSON, tables and texts; what is unreadable is a finding, never an
exception sets SetEvidence: the walk over a folder; set.json, submissions, jobs, runs, and what
attempts there are attempts one record per attempt and per node of it events who was set aside,
blamed or lost, and why nodes, bandwidth, starts, tunables, hardware, environment, bundle what is on
record of nodes, host settings, variables progress, state, picture, watch, logs what a set is doing
now
"""
