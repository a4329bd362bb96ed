"""The Spark source and sink: ``format("spillable")``."""
