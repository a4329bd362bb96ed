"""The sink: what tasks stage, and the driver commits."""
