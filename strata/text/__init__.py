"""Text: tokens from text, text from tokens, prompts from conversations.

Knows tokenizers and templates; knows no torch, no engine and no HTTP. Whatever
a client or a model file sends in, only errors of `strata.types` come out.
"""
