"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specedit.models import DEFAULT_MODEL, DTYPES, check_device
from specedit.proposers import DEFAULT, find
from specedit.types import SpecEditError

_MOST_STOPS = 16


def or_usage_error(parse: Callable[[str], Any]) -> Callable:
    """A click callback that gives what `parse` makes of a value. What it refuses is wrong usage."""

    def callback(context: click.Context, option: click.Parameter, value: str) -> Any:
        try:
            return parse(value)
        except SpecEditError as error:
            raise click.BadParameter(str(error)) from error

    return callback


def stops(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Stop strings, as far as a server takes them, too."""
    if not all(value) or len(value) > _MOST_STOPS:
        raise click.BadParameter(f"give up to {_MOST_STOPS} texts, none of them empty.")
    return value


def proposer_names(value: str) -> list[str]:
    """The names in a list with commas, each of which there is, once."""
    names = list(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    find(names)
    return names


def model_options(command: Callable) -> Callable:
    """The options that choose and load a model."""
    for option in (
        click.option(
            "--proposers",
            default=",".join(DEFAULT),
            show_default=True,
            callback=or_usage_error(proposer_names),
            help="Who guesses, by name. draft_model:MODEL adds a small model for novel text.",
        ),
        click.option(
            "--dtype",
            type=click.Choice(["auto", *DTYPES]),
            default="auto",
            show_default=True,
            help="auto is what the device does natively.",
        ),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            callback=or_usage_error(check_device),
            help="cpu, cuda, cuda:1 or mps; auto is the best there is.",
        ),
        click.option(
            "--model",
            help="A hub id, a folder or a .gguf file; llamacpp:FILE.gguf lets llama.cpp run it.  "
            f"[default: {DEFAULT_MODEL}]",
        ),
    ):
        command = option(command)
    return command


def hosted_options(command: Callable) -> Callable:
    """The options that let a provider of OpenAI's API do the work."""
    for option in (
        click.option(
            "--api-price",
            "price",
            type=click.FloatRange(min=0),
            metavar="DOLLARS",
            help="For a million tokens of answers: says what rejected ones of the prediction cost.",
        ),
        click.option(
            "--api-key-file",
            "key_file",
            type=click.Path(path_type=Path),
            help="Holds the provider's key.  [default: SPECEDIT_API_KEY, or the provider's own variable]",
        ),
        click.option("--api-model", metavar="NAME", help="The provider's model."),
        click.option(
            "--api-base",
            metavar="URL",
            help="Let a provider of OpenAI's API write it, and send the file as its prediction.",
        ),
    ):
        command = option(command)
    return command


def sampling_options(command: Callable) -> Callable:
    """The options that say how a token is drawn."""
    # As far as a server takes them, too.
    seeds, penalties = click.IntRange(0, 2**63 - 1), click.FloatRange(-2, 2)
    for option in (
        click.option("--seed", type=seeds, default=0, show_default=True, help="For sampling."),
        click.option("--frequency-penalty", type=penalties, default=0.0, help="Per earlier use of a token."),
        click.option("--presence-penalty", type=penalties, default=0.0, help="For tokens used before."),
        click.option("--repetition-penalty", type=click.FloatRange(0.1, 10), default=1.0, help="1 is off."),
        click.option(
            "--min-p", type=click.FloatRange(0, 1), default=0.0, help="Share of the likeliest; 0 is off."
        ),
        click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, help="1 is off."),
        click.option("--top-k", type=click.IntRange(0, 2**31 - 1), default=0, help="0 is off."),
        click.option(
            "--temperature",
            type=click.FloatRange(0, 2),
            default=0.0,
            show_default=True,
            help="0 is greedy.",
        ),
    ):
        command = option(command)
    return command


def chosen_here(names: tuple[str, ...]) -> bool:
    """Whether the user gave one of these options."""
    default = click.core.ParameterSource.DEFAULT
    context = click.get_current_context()
    return any(context.get_parameter_source(name) is not default for name in names)
