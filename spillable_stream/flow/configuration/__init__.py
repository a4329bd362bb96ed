"""A flow of Flume's, described by configuration files: reading, checking and building it."""
