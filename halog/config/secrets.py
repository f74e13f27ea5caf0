"""This module has secrets: where the configuration says that one is found, and the value, which no text shows.

A configuration holds the place alone: a file, a variable of the environment, or a command that prints it. So neither
the file, nor what is activated, nor `halog config show` has a password. It is read when it is needed, and again for
each new connection where that is possible: a file that was replaced counts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from halog.errors import ConfigError

COMMAND_S: Final = 10.0
"""A command that prints a secret is ended after so many seconds."""
LARGEST: Final = 64 << 10
"""No secret has so many bytes: a path that was mistyped does not fill the memory."""

Problems = Iterator[tuple[str, str]]


class Secret:
    """A `Secret` is a value that no text shows: neither repr, str, format nor a traceback's variables."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value: for whoever gives it to a library."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not copied to other processes: give them its place")


@dataclass(frozen=True)
class SecretPlace:
    """A `SecretPlace` says where a secret is found: exactly one of the three is given."""

    file: Path | None = None  # its text, without the end of the last line
    env: str | None = None  # a variable of this process's environment
    command: tuple[str, ...] | None = None  # a program and its arguments, without a shell; it prints the secret

    def problems(self, key: str) -> Problems:
        """Yield (key, reason) of what cannot be meant. `key`: where it stands in the configuration."""
        given = [name for name in ("file", "env", "command") if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(given) if given else "none"
            yield key, f'needs one of file = "PATH", env = "VARIABLE", command = ["PROGRAM", …]; there is {said}'
        elif self.env == "":
            yield f"{key}.env", "must not be empty"
        elif self.command is not None and not (self.command and self.command[0]):
            yield f"{key}.command", "must name a program"

    def read(self, key: str) -> Secret:
        """Return the secret. ConfigError names the key, and why it cannot be read; it never has the value."""
        text = self._text(key)
        if "\0" in text:
            raise ConfigError(f"{key}: {self} holds a zero byte: a password has none", key=key)
        if not text:
            raise ConfigError(f"{key}: {self} is empty", key=key)
        return Secret(text)

    def __str__(self) -> str:
        if self.file is not None:
            return f"file {self.file}"
        return f"variable {self.env}" if self.env is not None else f"what {(self.command or ('?',))[0]} prints"

    def _text(self, key: str) -> str:
        try:
            if self.file is not None:
                with self.file.open("rb") as file:
                    data = file.read(LARGEST + 1)
            elif self.env is not None:
                data = os.environb.get(os.fsencode(self.env)) or b""
            else:
                data = self._printed(key)
            if len(data) > LARGEST:
                raise ConfigError(f"{key}: {self} has more than {LARGEST} bytes: that is no secret", key=key)
            return data.decode().removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise ConfigError(f"{key}: {self} cannot be read: {error.strerror}", key=key) from error
        except UnicodeDecodeError:
            raise ConfigError(f"{key}: {self} is not UTF-8 text", key=key) from None  # the error has the value

    def _printed(self, key: str) -> bytes:
        assert self.command is not None
        try:
            done = subprocess.run(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{key}: {self.command[0]} did not end within {COMMAND_S:.0f} s", key=key) from None
        if done.returncode:
            raise ConfigError(f"{key}: {self.command[0]} ended with {done.returncode}", key=key)
        return done.stdout
