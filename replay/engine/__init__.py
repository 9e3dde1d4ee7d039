"""Simulation of time: the event loop, the interface of policies, and the ledger."""
