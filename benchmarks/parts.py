"""The parts of the program, and how each was measured, for the document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    backlog,
    end_to_end,
    flow,
    footprint,
    growth,
    latency,
    objects,
    peer_rates,
    producer,
    puts,
    retention,
    slow_disks,
    sustained,
    workers,
)
from benchmarks.rounds import Group, Plan

__all__ = ["METHOD", "NOT_CLAIMED", "PARTS", "Part"]


@dataclass(frozen=True)
class Part:
    """A kind of work.

    Args:
        title: its section's title.
        method: its section's first paragraph.
        groups: yields what is compared.
        pictures: the pictures of its section: file and description.
    """

    title: str
    method: str
    groups: Callable[[Plan, Path], Iterator[Group]]
    pictures: tuple[tuple[str, str], ...] = ()


METHOD = """\
Every group of contestants ran in turn, round by round, in an order that turns, in one process and its children, and the
machine's own limit, the *floor*, was one of them. A figure is the median of the rounds; a ratio is the median of the
rounds' own ratios. A contestant runs for a fixed time, and again for a tenth of it before that. Bodies begin as JSON
does and continue with letters that hardly repeat; there are no headers unless it is said. Every put is durable when its
commit returns, but in the memory tier. A transaction's batch, or list of events, is made once and put again and again:
what makes events is not measured.

What puts and takes in turn begins with one transaction, then takes two together, and so on up to 32, as long as both
together need less than a sixteenth of the time. So a product whose takes get slower with what waits in its queue is
measured with a short queue, which is to its advantage. Puts, and takes, end when their time is up, with the rate up to
there: a transaction comes to its end, but a product without transactions for puts (or for takes), which is called once
an event, is stopped after any hundred events. Its transactions of 1,000 cost what ten of 100 do.

The floor of a durable put writes what the same transaction takes in the channel's log (measured on a channel) and calls
`fdatasync`: at the end of a growing file (*appending*), in a file whose blocks were allocated with `posix_fallocate`
(*preallocated*), or over what was written there before, in three files of 64 MiB that take turns, which is as fast as
the disk gets. The floor of a take reads as many bytes, and writes and syncs a record of 150 bytes. The memory tier's
floor copies the bodies into a buffer and out of it."""

NOT_CLAIMED = """\
- That another machine has these figures. A disk with a volatile cache, a network's disk or a busy neighbour changes
  `fdatasync` by a factor of 100; the ratios change less.
- That the channel is faster than what a product can do in another way of use: each is used as its documentation says
  for a queue, from Python, by one client. Redis and NATS serve many hosts, which the channel does not.
- That a product's default and the channel's are the same promise: several defaults lose what they acknowledged when the
  power goes (`docs/power_cut_table.md`). The targets compare with the safest mode of each.
- Anything about reads from a cold disk: what is opened and taken here is in the page cache.
- Anything about Flume: its figures, where the documentation has them, are from another program on another day.
- That a figure of less than 10 % difference is a difference."""

PARTS = {
    "sustained": Part(
        "Sustained durable puts",
        "*A steady state*: each contestant puts up to 32 transactions and takes them, in turn, on one thread, for 30 "
        "s in its rounds together; puts and takes are timed for themselves. It stays open between the rounds, and "
        "continues where it was. The channel has filled its data files before, so it uses them again, as the floor "
        "does. *A growing backlog*: puts alone, anew in each round. Checkpoints, and small transactions with a "
        "growing backlog, run for a fifth of that.",
        sustained.groups,
    ),
    "put": Part(
        "Durable puts, takes and commits",
        "Puts for a while, then takes all of it, in transactions of equal size. Threads share one handle. *Sequential "
        "writing* writes 8 transactions at once with one sync: what group commit can reach at best.",
        puts.groups,
        (("threads.svg", "durable puts by threads, beside the disk's limits"),),
    ),
    "slow-disks": Part(
        "Durable puts on slower disks",
        "As above, but each `fsync` and `fdatasync` of the process sleeps first, the floor's too: this machine's disk "
        "syncs faster than most, and the faster it syncs, the more of a put is Python.",
        slow_disks.groups,
    ),
    "end-to-end": Part(
        "End to end, durable",
        "One thread, or process, puts, and another one takes meanwhile. The floor writes and syncs, reads, and writes "
        "and syncs the record of a take, one after the other. The clock stops at the last event.",
        end_to_end.disk_groups,
    ),
    "memory": Part(
        "The memory tier, and a spill",
        "*Arrow batches* and *Python events* put and then take; the others do both at once. With a spill, memory has "
        "room for 10 transactions, and `overflowTimeout` is 0.",
        end_to_end.memory_groups,
    ),
    "producer": Part(
        "The producer",
        "Threads send events one by one, with a future each, through one producer to one channel, with its defaults: "
        "batches of 512 KiB, and the headers that tell an event's context. The clock stops when the last future is "
        "done. Beside it, events that one thread collects and puts in transactions of as many; and a queue between two "
        "threads that stores nothing. Latency is that of every 16th send.",
        producer.groups,
    ),
    "flow": Part(
        "Through a flow",
        "A `ChannelProcessor` runs each batch through interceptors and a selector into its channels. *Plain puts* put "
        "what comes out of that, made once, into one channel after the other. Processor time is that of all threads.",
        flow.groups,
    ),
    "replay": Part(
        "Opening a long backlog, and its memory",
        "The channel grows between the groups, and all of it is in the page cache. *After a reboot* the file `head`, "
        "which does not outlive a host, is missing, so that the whole log is checked. Memory is resident memory "
        "(`VmRSS`) of a new process, files that it has mapped included; the last backlog is made of large batches of "
        "small events.",
        backlog.groups,
        (("open.svg", "time to open by backlog"),),
    ),
    "retention": Part(
        "Keeping what was taken, and going back",
        "A put and a take in turn, on one thread. Processor time is that of the calling thread in its calls, and that "
        "of all threads together: one of them moves what is kept, and lets it go. System calls are those of the "
        "calling thread that read, change or sync files; they are counted in another run. The kept events lie in "
        "as many blocks of the index as events of 100 bytes would take, in small frames; they are opened from a "
        "checkpoint, and all of them are in the page cache. A seek is a commit with a sync.",
        retention.groups,
    ),
    "footprint": Part(
        "Bytes, age and import",
        "Bytes on disk are by how far the log's end moves. Age: a process puts and takes in turn, with a checkpoint "
        "every half second. Import: a new process each time, with warm files.",
        footprint.groups,
    ),
    "growth": Part(
        "How cost grows with work",
        "Processor time of the calling thread for one transaction of one event, where nothing else is said, in "
        "microseconds: what grows with the work, not what the disk does. Backlogs are simulated in the state, a block "
        "for each file of 64 MiB, behind a few events that are there to be taken. The picture shows each cost beside "
        "its own at the smallest size: a flat line does not grow, and the dotted one grows as the work does. A "
        "checkpoint has a number for each file and each group, so it grows with them, and so does a transaction with "
        "its columns. Processes that put at once wait for each other, by the clock: *all together* is what a put takes "
        "of the time of all, and *of the slowest* what it takes the process that has the fewest.",
        growth.groups,
        (("growth.svg", "cost by the amount of work"),),
    ),
    "peers": Part(
        "Beside other products",
        "Each puts up to 32 transactions and takes them, in turn, for a while, as its documentation says for a queue: "
        "bodies are bytes, a transaction is the product's own where it has one (SQLite, LMDB, rocksdict's batch, "
        "litequeue's puts, MULTI of Redis), a stream of publishes that are all acknowledged (NATS), and else one call "
        "after the other. Redis Streams and NATS are read by one consumer group that acknowledges, and delete nothing. "
        "Servers listen on the loopback interface.",
        peer_rates.groups,
        (("puts.svg", "puts beside other products"), ("takes.svg", "takes beside other products")),
    ),
    "objects": Part(
        "Channels in an object store",
        "Each commit is one conditional PUT and one small GET, so beside the floor, which is the PUT alone, no more "
        "than 50/70 can be reached where these take 50 and 20 ms, and bytes no time. The S3 is moto's, over the "
        "loopback interface; as far away as in the region, a PUT takes 50 ms more than that, and a GET 20 ms. The "
        "other stores are a dictionary that answers as late. `commitInterval` is 0, and one thread commits. A group is "
        "of transactions that wait together: from there on it is measured, without what each does before. Several "
        "writers commit events one by one, each with a handle of its own, as on hosts of their own, once. The channels "
        "of a set are read by one source without Spark, which takes and commits what it reads.",
        objects.groups,
    ),
    "workers": Part(
        "A worker beside plain takes",
        "Each empties a channel of the same events, as Python events, with a commit for each batch. The worker's "
        "function does nothing: what is measured is what the worker itself costs.",
        workers.groups,
    ),
    "latency": Part(
        "Latency",
        "Percentiles of each round, and their medians; the first transactions are among them.",
        latency.groups,
    ),
}
