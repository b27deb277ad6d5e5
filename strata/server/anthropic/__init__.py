"""Anthropic's Messages API: bodies, the chats they ask for, events, errors.

Knows of answering only the seams: a ChatRequest goes out, Deltas come back.
"""
