"""Pure bytes: frames, records, batches and the checkpoint image. No I/O and no clock."""
