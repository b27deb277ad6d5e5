"""OpenAI's Responses API: its bodies, its items as a chat, its events, and what it remembers."""
