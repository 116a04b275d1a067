"""Whole brokers under controllers of the product."""
