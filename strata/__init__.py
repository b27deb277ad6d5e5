"""Strata: an inference server for mixture-of-experts models larger than fast memory."""

__version__ = "0.1.0"
