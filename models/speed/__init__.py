"""The speed of a job: curves from measurements, throughput and goodput, applications."""
