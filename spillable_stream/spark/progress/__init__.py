"""The query listener: progress, lag and metrics of the queries on channels."""
