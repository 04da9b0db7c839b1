"""Spark's settings, Java, jars: how every Spark of this project starts."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rewindow.application import Mode
from rewindow.errors import InputError, ResourceError
from rewindow.launcher.attempts import submit_command
from rewindow.settings.config import Config, SparkConfig
from rewindow.spark import jars, java
from rewindow.spark.settings import (
    DRIVER_OPTIONS,
    class_archive,
    make_scratch,
    scratch_folder,
    spark_environment,
    spark_settings,
    usable_archive,
)
from tests.namespaces import run_in_namespace

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings with a folder of jars that are there by name only."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in jars.expected_jars():
        (folder / name).write_bytes(b"")
    return Config(state=tmp_path / "state", spark=SparkConfig(jars=str(folder)))


def with_spark(config: Config, **changes: object) -> Config:
    return config.model_copy(update={"spark": config.spark.model_copy(update=changes)})


def test_local_spark_settings_use_utc_loopback_and_jars_from_the_folder(config: Config) -> None:
    settings = spark_settings(config)
    assert settings["spark.hadoop.fs.defaultFS"] == "file:///"
    assert settings["spark.jars"].count(str(config.jars)) == len(jars.expected_jars())
    assert "spark.jars.packages" not in settings
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.local.dir"].startswith(str(config.state))


def test_cluster_settings_keep_the_driver_reachable(config: Config) -> None:
    settings = spark_settings(with_spark(config, master="spark://host:7077"))
    assert (
        not {"spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"} & settings.keys()
    )


@pytest.mark.parametrize(
    ("master", "cores_max", "limited", "partitions"),
    [
        ("local[4]", 3, "local[3]", "6"),
        ("local[4, 2]", 1, "local[1,2]", "2"),
        ("local[2]", 8, "local[2]", "4"),
    ],
)
def test_cores_max_limits_the_threads_of_a_local_master(
    config: Config, master: str, cores_max: int, limited: str, partitions: str
) -> None:
    settings = spark_settings(with_spark(config, master=master), cores_max=cores_max)
    assert settings["spark.master"] == limited
    assert settings["spark.sql.shuffle.partitions"] == partitions


@pytest.mark.parametrize(
    ("master", "conf", "limits"),
    [
        ("spark://host:7077", {}, {"spark.cores.max": "6"}),
        ("spark://host:7077", {"spark.cores.max": "4"}, {"spark.cores.max": "4"}),
        (
            "yarn",
            {"spark.executor.cores": "4", "spark.executor.instances": "5"},
            {"spark.executor.instances": "1", "spark.dynamicAllocation.maxExecutors": "1"},
        ),
    ],
)
def test_cores_max_limits_the_cores_on_a_cluster(
    config: Config, master: str, conf: dict[str, str], limits: dict[str, str]
) -> None:
    settings = spark_settings(with_spark(config, master=master, conf=conf), cores_max=6)
    assert settings.items() >= limits.items()


def test_cores_max_below_the_cores_of_an_executor_raises_an_error(config: Config) -> None:
    large = with_spark(config, master="spark://host:7077", conf={"spark.executor.cores": "4"})
    with pytest.raises(InputError, match="an executor has 4 cores"):
        spark_settings(large, cores_max=2)


def test_spark_conf_overrides_defaults_and_extends_driver_options(config: Config) -> None:
    given = {"spark.sql.shuffle.partitions": "7", DRIVER_OPTIONS: "-Xss8m"}
    settings = spark_settings(with_spark(config, conf=given))
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings[DRIVER_OPTIONS].endswith("-Xss8m")
    assert "-Duser.timezone=UTC" in settings[DRIVER_OPTIONS]


def test_at_most_once_disables_retries_and_speculation_of_spark(config: Config) -> None:
    # Rules: R13, R49
    settings = spark_settings(config, needed=Mode.AT_MOST_ONCE.spark_settings)
    assert settings["spark.task.maxFailures"] == "1"
    assert settings["spark.stage.maxConsecutiveAttempts"] == "1"
    assert settings["spark.speculation"] == "false"


def test_at_most_once_rejects_a_setting_that_allows_spark_retries(config: Config) -> None:
    broken = with_spark(config, conf={"spark.task.maxFailures": "4"})
    spark_settings(broken)
    with pytest.raises(InputError, match=r"spark\.task\.maxFailures"):
        spark_settings(broken, needed=Mode.AT_MOST_ONCE.spark_settings)


@pytest.mark.parametrize("master", ["local[2,4]", "local[*, 2]"])
def test_at_most_once_rejects_a_local_master_with_task_retries(config: Config, master: str) -> None:
    # The number in the master takes precedence over spark.task.maxFailures.
    broken = with_spark(config, master=master)
    spark_settings(broken)
    with pytest.raises(InputError, match="with which Spark runs a task"):
        spark_settings(broken, needed=Mode.AT_MOST_ONCE.spark_settings)
    for whole in ("local", "local[2]", "local[2,1]"):
        spark_settings(with_spark(config, master=whole), needed=Mode.AT_MOST_ONCE.spark_settings)


def test_job_settings_are_in_a_file_that_only_its_user_can_read(config: Config) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "S3cr=t# \\t!:\n end", "spark.a b": " x"}
    command = submit_command(
        with_spark(config, conf=conf),
        "record.py",
        ["--stream", "s"],
        name="record s",
    )
    assert "S3cr" not in " ".join(command)
    path = Path(command[command.index("--properties-file") + 1])
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "spark.hadoop.fs.s3a.secret.key=S3cr=t# \\\\t!:\\n end\n" in text
    assert "spark.a\\ b=\\ x\n" in text
    assert "spark.driver.memory=2g\n" in text


def test_job_environment_keeps_the_cluster_configuration() -> None:
    cluster = {
        name: f"/etc/{name}" for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
    }
    environment = spark_environment(cluster)
    assert {name: environment[name] for name in cluster} == cluster


def test_missing_jar_is_reported_with_the_command_to_run(config: Config) -> None:
    (config.jars / "delta-storage-4.4.0.jar").unlink()
    with pytest.raises(ResourceError) as caught:
        spark_settings(config)
    assert "delta-storage-4.4.0.jar" in caught.value.primary
    assert "make setup" in caught.value.hint


def test_jvm_class_archive_is_used_only_if_complete(config: Config) -> None:
    # A JVM crashes on a truncated archive, so its size decides.
    archive = class_archive(config)
    archive.write_bytes(b"12345")
    assert usable_archive(config) is None
    archive.with_suffix(".bytes").write_text("5\n")
    assert usable_archive(config) == archive
    assert f"-XX:SharedArchiveFile={archive}" in spark_settings(config)[DRIVER_OPTIONS]
    archive.write_bytes(b"123")
    assert usable_archive(config) is None


def test_job_environment_excludes_foreign_spark_python_and_java_options() -> None:
    stray = {
        "SPARK_HOME": "/x",
        "PYTHONPATH": "/x",
        "JAVA_TOOL_OPTIONS": "-Xmx1m",
        "PYSPARK_PYTHON": "/x",
        "KEPT": "1",
    }
    environment = spark_environment(stray)
    assert environment["KEPT"] == "1"
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert not {"SPARK_HOME", "PYTHONPATH", "JAVA_TOOL_OPTIONS"} & environment.keys()


def test_java_of_another_version_is_rejected_with_the_version_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    binary = tmp_path / "bin" / "java"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    binary.chmod(0o755)
    monkeypatch.setattr(java, "_candidates", lambda: iter([tmp_path]))
    with pytest.raises(ResourceError, match="no Java 17") as caught:
        java.find_java.__wrapped__()
    assert f"{tmp_path} is Java 21" in caught.value.detail


def test_damaged_jar_is_downloaded_again_and_a_wrong_one_is_discarded(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "good.jar"
    monkeypatch.setattr(jars, "expected_jars", lambda: {name: hashlib.sha256(b"good").hexdigest()})

    def resolve(content: bytes) -> None:
        def fake(work: Path, names: list[str]) -> None:
            (work / "jars").mkdir()
            for wanted in names:
                (work / "jars" / wanted).write_bytes(content)

        monkeypatch.setattr(jars, "_resolve", fake)

    (config.jars / name).write_bytes(b"hal")
    resolve(b"evil")
    with pytest.raises(ResourceError, match="has the wrong checksum"):
        jars.fetch_jars(config.jars)
    assert (config.jars / name).read_bytes() == b"hal"
    resolve(b"good")
    assert jars.fetch_jars(config.jars) == [name]
    assert (config.jars / name).read_bytes() == b"good"
    assert jars.fetch_jars(config.jars) == []
    assert not list(config.jars.glob(".fetch-*"))


@pytest.mark.parametrize(
    "module",
    ["rewindow.cli", "rewindow.launcher", "rewindow.storage.delta", "rewindow.application"],
)
def test_light_modules_do_not_import_pyspark_airflow_or_great_expectations(module: str) -> None:
    code = (
        f"import sys, {module}; print(*[n for n in ('pyspark', 'airflow', "
        "'great_expectations') if n in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""


def test_example_streams_have_8756_common_windows() -> None:
    # Rules: W39, W40
    from rewindow.windows import parse_time

    config = Config.load(ROOT / "rewindow.toml")
    flights = config.stream("flights")
    weather = config.stream("weather")
    assert flights.sealed_to is not None
    assert flights.sealed_to == weather.sealed_to
    first = flights.grid.window(parse_time("2013-01-01T10:17:00Z"))
    after = flights.grid.window(parse_time(flights.sealed_to))
    assert (first, after - first) == (376954, 8756)
    assert after - 1 == flights.grid.window(parse_time("2014-01-01T05:26:00Z"))


def test_scratch_files_of_ended_local_processes_are_deleted(config: Config) -> None:
    own = scratch_folder(config)
    place = own.name.rpartition("-")[0]
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    ended = own.with_name(f"{place}-{process.pid}")
    other = own.with_name(f"{place}x-{process.pid}")
    living = own.with_name(f"{place}-{os.getppid()}")
    for folder in (ended / "blockmgr", other, living):
        folder.mkdir(parents=True)
    make_scratch(config)
    assert sorted(own.parent.iterdir()) == sorted([own, other, living])


MAKE_SCRATCH = """
import sys
from pathlib import Path
from rewindow.settings.config import Config
from rewindow.spark.settings import make_scratch, scratch_folder
config = Config(state=Path(sys.argv[1]))
make_scratch(config)
print(scratch_folder(config).name, flush=True)
sys.stdin.read()
"""


def test_scratch_files_of_a_live_process_in_another_pid_namespace_are_kept(
    config: Config,
) -> None:
    # Its pid names another process there, or none.
    make_scratch(config)
    own = scratch_folder(config)
    os.utime(own, (0, 0))
    elsewhere = run_in_namespace(MAKE_SCRATCH, str(config.state), input="").strip()
    assert own.is_dir()
    assert own.with_name(elsewhere).is_dir(), "it was seen a moment ago"
    os.utime(own.with_name(elsewhere), (0, 0))
    make_scratch(config)
    assert [folder.name for folder in own.parent.iterdir()] == [own.name]


def test_scratch_files_of_a_host_with_the_same_name_prefix_are_not_deleted(config: Config) -> None:
    own = scratch_folder(config)
    place, _, _ = own.name.removeprefix(f"{socket.gethostname()}-").partition("-")
    other = own.with_name(f"{socket.gethostname()}-2-{place}-{2**22 + 1}")
    other.mkdir(parents=True)
    make_scratch(config)
    assert other.is_dir()
