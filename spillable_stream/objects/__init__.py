"""A log of objects in a store: one object per append, created only if it does not exist. See docs/durability.md."""
