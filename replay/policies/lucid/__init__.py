"""Lucid (ASPLOS'23): orchestrator, binder, profiler, submission forecast."""
