"""The engine: who runs when, one step at a time, and what each row says next."""
