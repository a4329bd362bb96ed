"""What users hold: the channel, its transactions and consumers, events and figures."""
