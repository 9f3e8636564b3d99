"""What the person who starts the server decides."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from specedit.types import SpecEditError


@dataclass(frozen=True)
class Settings:
    """How the server listens, whom it answers and how much it takes on.

    Attributes:
        host, port: where to listen.
        api_keys: one of these is asked for, unless there are none.
        hosts: names that the server may be called by, besides those of this machine's loopback.
        origins: web pages that may call it, as a browser writes their origin; "*" is every page.
        running: how many answers are decoded at a time, where the editor decodes several.
        waiting: how many more may wait for their turn; others are told to come back.
        body: the largest request, in bytes.
        ping: seconds after which a stream that has nothing to say sends a comment, so that nobody hangs up.
        grace: seconds that answers still have when the server is told to stop.
        name: of the model, as clients see it; by default its own.

    Raises:
        SpecEditError: others could reach the server, and it has no key.
    """

    host: str = "127.0.0.1"
    port: int = 8317
    api_keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    running: int = 16
    waiting: int = 64
    body: int = 8 * 1024 * 1024
    ping: float = 10.0
    grace: float = 30.0
    name: str = ""

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.api_keys:
            raise SpecEditError(
                f"Others can reach {self.host}: give an --api-key (or SPECEDIT_API_KEY), or leave out --host."
            )
        if not all(key.strip() for key in self.api_keys):
            raise SpecEditError("An API key is empty: give one that nobody guesses, or leave it out.")
        as_browsers_write = tuple(origin.rstrip("/").lower() for origin in self.origins)
        object.__setattr__(self, "origins", as_browsers_write)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    address = address_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is written as; None if it is a name."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
