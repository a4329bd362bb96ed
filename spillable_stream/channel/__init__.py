"""The queue: its state, groups, transactions, and the handle that users hold."""
