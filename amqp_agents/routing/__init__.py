"""Whom to trust with work now: breakers. Pure: time and chance are handed in, nothing waits."""
