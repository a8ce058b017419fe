"""The live page of a package that is imported from an archive, as of zipapp."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import aioproducer

HOME = Path(aioproducer.__file__).parent
PROGRAM = """
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from aioproducer.starlette import LivePage, ProducerLifespan
from aioproducer.testing import MockProducer

app = Starlette(routes=[Mount("/live", LivePage())], lifespan=ProducerLifespan(MockProducer))
with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
    for name in ("", "page.css", "page.js"):
        answer = client.get(f"/live/{name}")
        print(answer.status_code, answer.headers["content-type"].partition(";")[0])
"""


def test_files_of_the_page_are_read_from_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "app.pyz"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in HOME.rglob("*"):
            if path.suffix in {".py", ".html", ".css", ".js"}:
                packed.write(path, path.relative_to(HOME.parent))
    environment = os.environ | {"PYTHONPATH": str(archive), "AIOPRODUCER_IMPL": "pure"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.split("\n") == ["200 text/html", "200 text/css", "200 text/javascript", ""]
    assert ended.returncode == 0
