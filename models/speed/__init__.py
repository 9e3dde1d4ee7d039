"""How fast a job goes: curves from measurements, throughput and goodput, what a training log tells."""
