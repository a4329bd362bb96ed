"""The machinery of a channel in an object store."""
