"""The reading side of a set's folder: every command that shows something of a set reads it here.

files      a bounded reader of JSON, tables and texts; an unreadable file is a finding
sets       SetEvidence: the walk over a folder, from set.json to the attempts
attempts   a record per attempt, and per node of it
events     excluded, blamed and lost nodes; nodes, bandwidth, starts, tunables, hardware
           and bundle have the rest about nodes, host settings and variables
progress   growing logs; state, picture and watch show the current set
explain    why a set is in its state
"""
