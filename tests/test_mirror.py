"""Where the tests of a module are: in the mirrored folder, in a test module of its name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "spillable_stream"

# Modules without a test module, and where what they promise is tested. This list only shrinks.
ELSEWHERE = {
    "format/extent": "log/test_event_reader",  # a tuple of fields
}

# Test modules of more than one module: what a room promises as a whole, told by a property or a story.
SCENARIOS = {
    "archive/test_backup_delays": "backups of delayed events, and of side files that are delivered meanwhile",
    "archive/test_restore_on_s3": "a restore to an S3 that is killed",
    "cli/test_beside_an_owner": "each verb beside a process that owns a group",
    "cli/test_wrong_paths": "each verb at each kind of wrong path",
    "cli/test_impossible_paths": "each verb at a path at which nothing can be",
    "cli/test_help_examples": "the example of each verb's help, run as it is written",
    "cli/test_signals": "the exit status of each verb after each signal",
    "cli/test_unread_output": "a reader that closes the pipe of a verb's output",
    "cli/test_interrupts": "Ctrl-C in each phase of each long verb",
    "cli/test_put_rows": "`spillable put` of rows: columns, types, delimiters and codes",
    "flow/sinks/test_hdfs_crashes": "files of an HDFS sink after crashes, failures and interrupts",
    "flow/sinks/test_on_s3": "files of sinks on an S3",
    "flow/test_handing_over": "what a source holds as its channel fails, or its file changes",
    "flow/test_agent_reload": "changed files of an agent that runs",
    "flow/sources/test_taildir_copies": "growing files that are renamed, copied and truncated",
    "flow/sources/test_taildir_restarts": "where a source of growing files begins again",
    "flow/test_guarantees": "what docs/flow.md promises from source to channel and from channel to sink",
    "flow/test_drains": "drains of an agent whose optional channel is away",
    "flow/test_full_disks": "a full disk of what a flow writes beside its channels",
    "flow/test_failing_sinks": "groups of a real agent's sinks whose servers go down and come back",
    "flow/test_timed_batches": "the times of events that a processor puts",
    "flow/test_waiting_batches": "batches that wait in a processor while capacities are lowered",
    "flow/configuration/test_corpus": "what people get wrong in configuration files, with the findings",
    "workers/test_bad_input": "workers and delays that are asked for wrongly, in every kind of channel",
    "workers/test_killed_workers": "what the next worker knows of calls and failures",
    "workers/test_worker_ends": "how workers end",
    "integrity/test_object_repair_faults": "repairs in a store that fails, and of anything that can be damaged",
    "integrity/test_repair_behind_holes": "repairs in a store behind a hole in the log",
    "integrity/test_repair_directories": "repairs of directories that do not prove whose they are",
    "integrity/test_repair_kills": "repairs that are killed",
    "integrity/test_repair_missing_files": "repairs of channels that lack files, and what is left in part",
    "integrity/test_repair_of_used_ids": "repairs in a store where others have the IDs of lost events",
    "integrity/test_kept_events": "damage among events that no group needs",
    "channel/test_another_engine": "a channel on an engine without tiers and files of its own",
    "channel/test_commit_in_doubt": "commits that a second interrupt leaves to another thread",
    "channel/test_damage_advice": "what an open, a take, a read and a look say of damage",
    "channel/test_cost": "how many calls a put and a take cost",
    "channel/test_keeping_machine": "any sequence of calls to a channel that keeps events, beside a model",
    "channel/test_machine": "any sequence of calls, beside a model",
    "channel/test_mode": "the members of a Unix group share a channel",
    "channel/test_moved_events": "events on disk after later ones",
    "channel/test_object_faults": "a channel on a store that fails once, and a process that is killed, at each request",
    "channel/test_object_machine": "any sequence of calls to a channel in an object store, beside a model",
    "channel/test_object_put_backs": "a channel whose bucket is put back to any of its versions at any moment",
    "channel/test_object_meetings": "whole calls of other handles at each request of one, on a store",
    "channel/test_processes": "several processes at once",
    "channel/test_spool_delays": "events that wait, through a spool in front of a store",
    "channel/test_spool_ends": "how handles with a spool end, and several of them at once",
    "channel/test_spool_machine": "any sequence of calls through a spool in front of a store, beside a model",
    "channel/test_spool_offline": "a process with a spool that starts while the store is down",
    "channel/test_spool_faults": "a spool whose process is killed, and whose store fails, at each request",
    "channel/test_values": "what is acknowledged can be given out again",
    "engine/test_damaged_deliveries": "events that wait in files that are damaged",
    "engine/test_delayed_ttls": "the ttl of events that wait",
    "engine/store/test_checkpoints_of_replaced_channels": "checkpoints of channels that are removed or put back",
    "engine/store/test_delay_merging_meanwhile": "what happens while waiting events of a store are copied",
    "engine/store/test_deliveries_in_a_store": "events that wait in a store",
    "engine/store/test_lost_slots": "what handles say of slots that a store overwrote, or lacks since it was put back",
    "engine/test_large_deliveries": "what large backlogs of events that wait cost",
    "engine/local/test_flush": "memory that a flush, or the last close, moves to disk",
    "engine/local/test_groups_after_a_loss": "what each group has lost with a memory tier",
    "engine/local/test_surviving_memory": "memory that an open finds whole, in part, or held by others",
    "engine/local/test_memory_elsewhere": "memory tiers of copies, on other mounts and of other hosts",
    "engine/test_ownerless_time": "how long a group has had no owner, from process to process",
    "engine/test_large_state": "a state larger than a frame",
    "engine/test_lasting_ttls": "a ttl in verify and repair, backups, spools, workers, and earlier versions",
    "engine/store/test_paused_calls": "a process that is paused for longer than objects stay",
    "engine/local/test_readonly_handles": "a handle that only reads changes nothing and is in nobody's way",
    "engine/local/test_spill_stress": "many threads and processes on little memory",
    "engine/local/test_strays": "files that are not the channel's",
    "engine/test_throw_away": "a notebook that is run again and again, each time with a new checkpoint",
    "log/test_fairness": "each process has its share of the lock",
    "objects/test_bucket_rules": "a channel in a bucket with rules, and in one that refuses for a while",
    "objects/test_channels": "a channel in every kind of store",
    "objects/test_cloud_uploads": "objects that are sent to a cloud in parts",
    "objects/test_expired_credentials": "a put, a producer, a worker and a spool whose credentials expire",
    "objects/test_lacking_rights": "a channel in a store whose credentials lack a right",
    "objects/test_on_servers": "sets, shards, spools and caches on an S3 and a Google Cloud Storage",
    "objects/test_histories": "writers, readers and a collector on a store that fails",
    "objects/test_kills_on_servers": "writers, takers and collectors that are killed, on servers of stores",
    "observe/test_cost": "what looking costs the writers, and whoever looks",
    "producer/test_division": "a batch that is too large, and what becomes of its parts",
    "producer/test_ends": "every kind of end of a process",
    "producer/test_machine": "any sequence of sends, failures and time",
    "producer/test_numbers_machine": "any sequence of sends and lost answers, by whom the batches are numbered",
    "producer/test_processes": "forks, exits and signals",
    "producer/test_cost": "how many calls a send costs",
    "producer/test_soak": "healthy destinations beside others",
    "producer/test_trouble": "errors whose text raises, and a log that does",
    "producer/test_values": "what is accepted is taken as it was sent",
    "spark/sink/test_changed_options": "a batch that comes again by other options of its stream",
    "spark/test_flow_query": "a Spark query as the sink of a running agent",
    "spark/test_expiring_credentials": "queries between channels of a store whose credentials expire",
    "spark/test_another_storage": "tasks read and stage by their plans only",
    "spark/test_class_archive": "what makes the JVMs of the tests start sooner",
    "spark/test_cluster": "executors in other processes and on other hosts",
    "spark/test_connect": "a Spark Connect client",
    "spark/test_drain": "what a query has read makes room",
    "spark/test_driver_kill": "the driver is killed",
    "spark/test_fan": "several queries on one channel",
    "spark/test_memory_tier": "Spark on a channel with a memory tier",
    "spark/progress/test_listener_on_spark": "a listener while queries run, fail, idle and end",
    "spark/source/test_copied_channels": "queries of a channel that a copy by another tool replaced",
    "spark/source/test_restored_channels": "queries of a channel that was restored from a backup",
    "spark/source/test_stores_put_back": "queries of a channel whose bucket was put back, and that others continued",
    "spark/source/test_missed_events": "events that are lost or removed before a query reads them",
    "spark/source/test_missing_channels": "channels of a set that appear, are restored, removed, and come back",
    "spark/test_object_cluster": "executors that share nothing with the driver but an object store",
    "spark/test_pipelines": "declarative pipelines",
    "spark/test_positions": "positions of queries, and kept events",
    "spark/test_readme": "the program of the README",
    "spark/test_soak": "a query that is stopped and started at random",
    "spark/test_sink_start": "what a sink's task imports",
    "spark/test_source_start": "what a query's first batch imports and opens",
    "spark/test_store_requests": "what the calls of Spark ask of a store",
    "spark/test_stream": "source and sink on a real Spark",
    "spark/test_throw_away": "a notebook cell that is run again and again",
    "spark/test_triggers": "every trigger",
    "spark/test_verbs_beside_a_query": "each verb beside a Spark query",
    "state/test_model": "any sequence of records, beside a model of single events",
    "test_contracts": "the import contracts name every room",
    "test_docs": "what the docs show",
    "test_english": "the linter of English",
    "test_examples": "the examples",
    "test_format_docs": "the formats as docs/format.md says them",
    "test_mirror": "this",
    "test_release": "what keeps a release back",
    "test_package": "what is exported and installed",
    "test_said_ids": "IDs in messages are plain digits",
    "test_said_commands": "the paths in commands that messages name",
    "test_site": "the documentation site",
    "test_wrong_arguments": "what is asked wrongly at the public door",
}

# Folders of tests that are about the project, not about a room of the package.
OF_THE_PROJECT = {"benchmarks", "crash", "demo", "golden", "lab", "support"}


@cache
def modules() -> set[str]:
    """The package's modules that do something."""
    return {str(p.relative_to(PACKAGE).with_suffix("")) for p in PACKAGE.rglob("*.py") if not p.stem.startswith("__")}


@cache
def all_test_modules() -> set[str]:
    """The test modules of the mirrored folders."""
    found = (p.relative_to(TESTS) for p in TESTS.rglob("test_*.py"))
    return {str(p.with_suffix("")) for p in found if p.parts[0] not in OF_THE_PROJECT}


def name_of_test(module: str) -> str:
    folder, _, name = module.rpartition("/")
    return f"{folder}/test_{name}".lstrip("/")


def test_every_module_has_a_test_module_of_its_name() -> None:
    missing = {m for m in modules() if name_of_test(m) not in all_test_modules()} - ELSEWHERE.keys()
    assert not missing, f"make a test module for each of {sorted(missing)}; ELSEWHERE only shrinks"


def test_every_test_module_is_of_a_module_or_a_scenario() -> None:
    stray = all_test_modules() - {name_of_test(m) for m in modules()} - SCENARIOS.keys()
    assert not stray, f"{sorted(stray)}: name each as the module that it is about, or list it in SCENARIOS"


def test_the_lists_are_of_what_there_is() -> None:
    tested = {m for m in modules() if name_of_test(m) in all_test_modules()}
    assert ELSEWHERE.keys() <= modules() - tested, "take what is tested or gone off ELSEWHERE"
    assert not set(ELSEWHERE.values()) - all_test_modules()
    assert SCENARIOS.keys() <= all_test_modules() - {name_of_test(m) for m in modules()}


def test_helpers_are_in_one_place() -> None:
    stray = [p for p in TESTS.rglob("*.py") if not p.name.startswith(("test_", "__init__", "conftest"))]
    assert {p.relative_to(TESTS).parts[0] for p in stray} <= {"golden", "lab", "support"}
