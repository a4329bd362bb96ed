"""A source's worker without Spark: batch after batch, each reported as Spark would and then committed.

python reader_process.py PATH BATCHES: for each batch a line with its progress; it commits when it reads a line.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.types import StructType

from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader


def reader(path: str, **options: Any) -> SpillableStreamReader:
    given = {"group": "default", "max_events_per_trigger": 10, **options}
    return SpillableStreamReader(path, StreamOptions.of(given), StructType())


def plan(source: SpillableStreamReader, start: dict[str, Any], batch: int) -> dict[str, Any]:
    """Plan a batch as Spark does, and return the progress that it sends when the batch is done."""
    end = source.latestOffset(start, source.getDefaultReadLimit())
    latest = source.reportLatestOffset()
    source.partitions(start, end)
    return progress([(start, end, latest)], batch)


def progress(sources: list[tuple[Any, Any, Any]], batch: int = 0, run: int = 1) -> dict[str, Any]:
    """Return the progress event of a batch that ends now, in the form in which Spark Connect sends it."""
    return {
        "progress": {
            "id": "00000000-0000-0000-0000-00000000000a",
            "runId": f"00000000-0000-0000-0000-{run:012}",
            "name": None,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "batchId": batch,
            "batchDuration": 1,
            "stateOperators": [],
            "sources": [
                {
                    "description": "a source",
                    "startOffset": start,
                    "endOffset": end,
                    "latestOffset": latest,
                    "numInputRows": 10,
                    "inputRowsPerSecond": 1.0,
                    "processedRowsPerSecond": 2.0,
                }
                for start, end, latest in sources
            ],
            "sink": {"description": "a sink", "numOutputRows": 10},
        }
    }


def main(path: str, batches: int) -> None:
    source = reader(path)
    start = source.initialOffset()
    for batch in range(batches):
        event = plan(source, start, batch)
        print(json.dumps(event), flush=True)
        sys.stdin.readline()
        start = event["progress"]["sources"][0]["endOffset"]
        source.commit(start)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
