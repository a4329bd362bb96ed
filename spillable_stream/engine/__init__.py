"""How one process keeps a channel: commits, the two tiers, groups, loading, recovery and checkpoints."""
