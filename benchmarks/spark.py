"""All of Spark's benchmarks: the source, the sink, latency and the start of a query, beside Spark's own."""

from __future__ import annotations

from benchmarks import spark_latency, spark_objects, spark_sink, spark_source, spark_start
from benchmarks.parts import Part

__all__ = ["SPARK_PARTS"]

_SOURCE = """\
The rows lie in a channel, put in transactions of 10,000 (`transactionCapacity`'s default), and in Parquet files that
Spark wrote (snappy), two files a micro-batch. Both are in the page cache. A query reads micro-batches of equal size
into `noop`. Two rounds of all contestants come before those that count, since the JVM compiles meanwhile. Rows a second
are over the batches' own `triggerExecution`, without the first two; CPU is that of the JVM and of Python's workers. The
channel checks every byte's checksum. The floor is a source in Python that yields one batch from memory again and again:
what Spark takes to pass rows from Python, without any storage, so no source in Python can be faster."""

_SINK = """\
`rate-micro-batch` makes the same rows for every sink. Parquet's sink (snappy, with its commit log `_spark_metadata`)
syncs nothing, so what it wrote can be lost with the host; the channel syncs every batch before it is committed. The
floor is a sink in Python that drops its rows, *noop* drops them in the JVM, and the last one writes the channel's bytes
of a batch with plain writes and syncs them. Two rounds of all contestants come before those that count, since the JVM
compiles meanwhile."""

_LATENCY = """\
Another process commits single rows at random moments, 0.3 to 0.9 s apart, each with the time when its commit began,
so the channel's figure has its sync in it. `foreachBatch` notes the time when `collect` has brought the row to the
driver. Every source meets the same moments and finds the query idle most of the time.

*The floor* is what Spark takes for a whole micro-batch of one row from `rate` into `noop` (`triggerExecution`):
nothing is waited for, and nothing comes from outside, so no source can be as quick. What a source in Spark's own JVM
can do is shown by its socket source, which polls an array in memory, through the same query and at the same moments.
A row that comes while a batch is under way waits for its end: half a batch on average, at worst a whole one more."""

_START = """\
A query with a new checkpoint is started in a session that has run others, and reads, or writes, batches of 1,000 rows.
The first batch is measured from the call of `start` until Spark reports it; the second one by its own
`triggerExecution`. Every query stops between two batches, so that its tasks' Python processes serve the next one: Spark
ends those of tasks that a stop interrupts, and starting new ones takes longer than all the rest. The sink creates its
channel, as Parquet's creates its directory. A source, or a sink, in Python that does nothing shows what Spark takes to
pass a query's batches to Python."""

_OBJECTS = """\
Two tasks write, or read, a batch in an S3 that moto plays over the loopback interface. In the plain contestant, the
same tasks serialise the same rows as Arrow and upload them with the same client, or read them in ranges, and the driver
writes one object that names theirs. The channel checks that its commit is the first, and every byte's checksum. It is
created before the clock starts. A round's figure is the median of three batches. Two rounds of all contestants come
before those that count, since the JVM compiles meanwhile. A batch costs the channel some requests more, however large
it is, so the sink also writes batches as large as on a disk."""

SPARK_PARTS = {
    "spark-source": Part("Spark's source", _SOURCE, spark_source.groups),
    "spark-sink": Part("Spark's sink", _SINK, spark_sink.groups),
    "spark-objects": Part("Spark in an object store", _OBJECTS, spark_objects.groups),
    "spark-latency": Part("Spark: latency", _LATENCY, spark_latency.groups),
    "spark-start": Part("Spark: the start of a query", _START, spark_start.groups),
}
"""The parts that need Java, and minutes."""
