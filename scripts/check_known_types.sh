#!/bin/sh
# Each public name has a type that every type checker infers alike: says which has not, and the score, which must be 100%.
found=$(PATH="$PWD/.venv/bin:$PATH" .venv/bin/basedpyright --verifytypes spillable_stream --ignoreexternal)
status=$?
[ $status -eq 0 ] || printf '%s\n' "$found" | grep -B1 -A1 'error:'
printf '%s\n' "$found" | grep 'score'
exit $status
