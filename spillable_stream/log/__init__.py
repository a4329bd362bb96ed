"""The write-ahead log: data files, roll, head, replay, reading, checkpoints and staged segments.

It knows frames, files and positions; what the records mean is the channel's business.
"""
