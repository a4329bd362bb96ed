"""What a power cut leaves: this channel beside other products, on real file systems.

``python -m benchmarks.power_cut`` runs it; `machine` cuts the power, `peers` has the
products, `rows` their modes, `cycle` does it once.
"""
