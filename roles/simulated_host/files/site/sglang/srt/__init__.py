"""The names under which the real package keeps its parser and its algorithms."""
