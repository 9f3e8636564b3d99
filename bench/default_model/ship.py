"""Put a trained adapter into the package: `python bench/default_model/ship.py`."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import click
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2]))

from specedit.default_model import ADAPTER, WHEEL
from specedit.editing import build_prompt
from specedit.paths import cache_folder

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
TRAINED = ADAPTER / "trained.json"


def prompt_hash() -> str:
    """Changes when the prompts do that the adapter was trained on: then it must be trained again."""
    prompts = [build_prompt("text\n", "Instruction.", name) for name in ("a.py", "b.js", "c.md")]
    shown = [(prompt.messages, prompt.prefill, prompt.fence) for prompt in prompts]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


@click.command()
@click.argument("trained", type=click.Path(exists=True, path_type=Path), default=cache_folder() / "training")
def main(trained: Path) -> None:
    """Copy the adapter in the folder TRAINED, in float16, and what it was trained on."""
    ADAPTER.mkdir(exist_ok=True)
    factors = load_file(trained / "checkpoint" / "adapter_model.safetensors")
    halved = {name: factor.to(torch.float16) for name, factor in factors.items()}
    save_file(halved, ADAPTER / "adapter_model.safetensors")
    config = json.loads((trained / "checkpoint" / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = BASE  # else a folder of the machine that trained it
    config["target_modules"].sort()  # peft keeps a set
    (ADAPTER / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    curve = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    about = {"prompt": prompt_hash(), "base": WHEEL.gguf_sha256, "steps": curve[-1]["step"]}
    TRAINED.write_text(json.dumps(about, indent=1) + "\n")
    size = (ADAPTER / "adapter_model.safetensors").stat().st_size
    click.echo(f"{ADAPTER}: {size / 1e6:.1f} MB, {about['steps']} steps")


if __name__ == "__main__":
    main()
