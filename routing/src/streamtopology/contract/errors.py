"""The root of the project's exceptions: every error whose message is for people derives from `StreamTopologyError`.

A message says what is wrong, where, and what to do. Commands and drivers catch the base and print the message; any other
exception is a programming error and shows its traceback. docs/reference/errors.md prints the whole tree.
"""

from __future__ import annotations

from typing import ClassVar


class StreamTopologyError(Exception):
    """Base of all errors with a message for people: the problem, its place, its remedy."""

    # The exit code of a command that ends with this error: 1 the run or a check failed, 2 usage error.
    exit_code: ClassVar[int] = 1


class InvalidInput(StreamTopologyError, ValueError):
    """A manifest, option, expression, schema or argument that cannot be; the message says what is allowed."""


class UnknownFailpoint(InvalidInput):
    """An environment variable names a point to die at that this process does not have."""


class UnreadableData(StreamTopologyError, ValueError):
    """A stored or received form that is damaged, incomplete, or written by another version."""


class Unavailable(StreamTopologyError):
    """Something that the command needs from its surroundings cannot be had: a process, a port, a server, a program."""
