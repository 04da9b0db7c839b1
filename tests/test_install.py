"""An Airflow of somebody else: an empty environment, the wheel, and a DAG file of five lines.

Installs some hundred packages from the package registry that pip is set to; so it has a marker of
its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.small_frames import small_frames_toml

ROOT = Path(__file__).parent.parent
DAG = """
from rewindow_airflow import check, interval_dag, plan_interval, publish, replay

with interval_dag("replay_clicks", application="clicks_by_page"):
    plan = plan_interval()
    plan >> replay(plan) >> check(plan) >> publish(plan)
"""
SETTINGS = """
state = "state"
applications = ["applications"]

[spark]
jars = "{jars}"
{small_frames}

[streams.clicks]
source = "clicks.csv"
columns = "at TIMESTAMP, page STRING"
arrived_at = "at"
width = "1 hour"
sealed_to = "2026-03-02T00:00:00Z"
"""
APPLICATION = '''
import pyarrow as pa

from rewindow.application import Application, FrameOperator, InputPort, OutputPort


class Clicks(FrameOperator):
    """Clicks of each page and window."""

    inputs = {"clicks": InputPort(pa.schema([("page", pa.string())]))}
    outputs = {"out": OutputPort(pa.schema([("page", pa.string()), ("clicks", pa.int64())]))}

    def transform(self, inputs, state, context):
        counts = inputs["clicks"].groupBy("window_id", "page").count()
        return counts.withColumnRenamed("count", "clicks")


app = Application("clicks_by_page", window="1 hour")
app.output("out", app.add("clicks", Clicks(), clicks=app.input("clicks")), key=["page"])
'''
OPENLINEAGE = "apache-airflow-providers-openlineage==2.20.3"
NEWEST_SPARK = "4.2.0"
Run = Callable[..., str]


def _wheel(folder: Path, run: Run) -> Path:
    """Returns the wheel, built from a copy: what setuptools leaves behind in a checkout would get
    into the next one.
    """
    for name in ("rewindow", "plugins", "jobs", "dags", "expectations"):
        shutil.copytree(
            ROOT / name,
            folder / "source" / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    run(
        "python",
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        "./source",
    )
    [wheel] = folder.glob("rewindow-*.whl")
    return wheel


def _constraints(file: Path) -> Path:
    """Writes the versions of the lock without their hashes: pip would else ask for the hash of our
    wheel, too.
    """
    lines = re.findall(
        r"^[\w.-]+==.+?(?= \\$)",
        (ROOT / "requirements.lock").read_text(),
        re.MULTILINE,
    )
    file.write_text("\n".join(lines))
    return file


def _project(folder: Path) -> None:
    (folder / "airflow" / "dags").mkdir(parents=True)
    (folder / "airflow" / "dags" / "replay_clicks.py").write_text(DAG)
    (folder / "applications").mkdir()
    (folder / "applications" / "clicks_by_page.py").write_text(APPLICATION)
    clicks = [f"2026-03-01T{hour:02}:30:00Z,home" for hour in range(24)]
    (folder / "clicks.csv").write_text("\n".join(["at,page", *clicks]) + "\n")
    settings = SETTINGS.format(jars=ROOT / ".rewindow" / "jars", small_frames=small_frames_toml())
    (folder / "rewindow.toml").write_text(settings)


def _environment(folder: Path) -> dict[str, str]:
    """Returns this process's environment without what would let the checkout, or another Airflow,
    be found.
    """
    strange = ("AIRFLOW", "REWINDOW", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    return kept | {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": os.pathsep.join((str(folder / "venv" / "bin"), os.environ["PATH"])),
        "REWINDOW_CONFIG": str(folder / "rewindow.toml"),
    }


def _fresh_environment(folder: Path) -> Run:
    """Returns a function that runs a command in a new Python environment in a folder."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)

    def run(*command: str, **environment: str) -> str:
        program = folder / "venv" / "bin" / command[0]
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            env=_environment(folder) | environment,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, (
            f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        )
        return done.stdout

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command of a fresh environment, in which pip has installed the wheel, with an empty
    Airflow home.
    """
    folder = tmp_path_factory.mktemp("installed")
    run = _fresh_environment(folder)
    asked = (f"{_wheel(folder, run)}[airflow]", OPENLINEAGE)
    constraints = _constraints(folder / "constraints.txt")
    run("python", "-m", "pip", "install", "--quiet", "--constraint", str(constraints), *asked)
    _project(folder)
    run("rewindow", "record", "clicks")
    run("airflow", "db", "migrate")
    run("airflow", "dags", "reserialize")
    return run


@pytest.fixture(scope="module")
def lineage(run: Run) -> list[dict[str, Any]]:
    """The events that a receiver of OpenLineage gets from a run of the DAG."""
    events: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        run(
            *("airflow", "dags", "test", "replay_clicks", "2026-03-02"),
            AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps({"type": "http", "url": address}),
            NO_PROXY="127.0.0.1",
        )
        server.shutdown()
    return events


@pytest.mark.install
@pytest.mark.jvm
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("lineage")
def test_installed_wheel_can_replay_a_recorded_stream(run: Run) -> None:
    def answer(*command: str) -> list[dict[str, Any]]:
        lines = run(
            "airflow",
            *command,
            "-o",
            "json",
        ).splitlines()  # The last one: Airflow's log goes there, too.
        return json.loads(lines[-1])  # type: ignore[no-any-return]

    assert [dag["dag_id"] for dag in answer("dags", "list")] == ["replay_clicks"]
    assert "rewindow" in {plugin["name"] for plugin in answer("plugins")}
    assert "rewindow" in {
        provider["package_name"]
        for provider in json.loads(run("airflow", "providers", "list", "-o", "json"))
    }
    [replay] = json.loads(run("rewindow", "list", "--json"))
    assert (replay["state"], replay["application"]) == ("published", "clicks_by_page")
    published = run("python", "-c", "import rewindow; print(rewindow.__file__)")
    assert "site-packages" in published


@pytest.mark.install
@pytest.mark.jvm
@pytest.mark.timeout(1800)
def test_openlineage_receives_the_streams_of_a_publication(lineage: list[dict[str, Any]]) -> None:
    [published] = [
        event
        for event in lineage
        if event["job"]["name"] == "replay_clicks.publish_windows"
        and event["eventType"] == "COMPLETE"
    ]
    streams = {}
    for side in ("inputs", "outputs"):
        streams[side] = [
            (dataset["namespace"], Path(dataset["name"]).name) for dataset in published[side]
        ]
    assert streams == {
        "inputs": [("file", "clicks")],
        "outputs": [("file", "clicks_by_page.out")],
    }


@pytest.mark.exhaustive
@pytest.mark.jvm
@pytest.mark.timeout(1800)
def test_replay_recovers_with_the_newest_spark(tmp_path: Path) -> None:
    run = _fresh_environment(tmp_path)
    constraints = _constraints(tmp_path / "constraints.txt")
    versions = re.sub(
        "^pyspark==.*$", f"pyspark=={NEWEST_SPARK}", constraints.read_text(), flags=re.M
    )
    constraints.write_text(versions)
    wheel = str(_wheel(tmp_path, run))
    run("python", "-m", "pip", "install", "--quiet", "--constraint", str(constraints), wheel)
    found = run("python", "-c", "import pyspark; print(pyspark.__version__)")
    assert found.strip() == NEWEST_SPARK
    _project(tmp_path)
    settings = tmp_path / "rewindow.toml"
    settings.write_text(settings.read_text().replace(str(ROOT / ".rewindow" / "jars"), "jars"))
    run("rewindow", "jars")
    run("rewindow", "record", "clicks")
    for replay, options in {
        "whole": (),
        "killed": ("--group-windows", "6", "--crash", "after_outputs:2@1"),
    }.items():
        run("rewindow", "replay", "clicks_by_page", "--id", replay, *options)
    attempts = json.loads(run("rewindow", "status", "killed", "--json"))["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["killed", "done"]
    run("rewindow", "certify", "whole", "killed", "--full")
    run("rewindow", "check", "killed")
    run("rewindow", "publish", "killed")
    run("rewindow", "certify", "published", "killed", "--full")
