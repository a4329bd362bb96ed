"""The machinery of a channel on this host: files, memory, locks."""
