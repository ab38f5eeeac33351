"""Visavis: a self-hosted assistant that one talks to face to face on a video call."""

__version__ = "0.1.0"
