"""The OpenAPI document, and requests made up from it."""

import subprocess
import sys

import pytest

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


@pytest.mark.parametrize(
    ("phases", "examples"),
    [("fuzzing", 20), pytest.param("examples,coverage,fuzzing", 300, marks=pytest.mark.slow)],
)
def test_requests_made_up_from_the_document(serve, knows_tools, tmp_path, phases, examples):
    served = serve(knows_tools("one two three"), waiting=1000)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json"),
            *(f"--checks={','.join(CHECKS)}", f"--phases={phases}", f"--max-examples={examples}"),
            *("--seed=1", "--generation-database=none", "--no-color"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert served.http.get("/health").status_code == 200
