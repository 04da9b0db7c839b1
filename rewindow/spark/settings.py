"""Spark's settings as plain text, for a session in this process and for spark-submit. Starts no
JVM.

This module only sets what is needed for correct results or for every start. `[spark.conf]` of
rewindow.toml overrides them.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import psutil

from rewindow.errors import InputError, ResourceError
from rewindow.processes.file_lock import is_locked, lock_until_exit
from rewindow.processes.identity import is_silent, pid_place
from rewindow.settings.config import Config
from rewindow.spark.jars import expected_jars, missing_jars
from rewindow.spark.java import JAVA_OPTIONS, find_java

DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_VACUUM = "spark.databricks.delta.vacuum"
_LOCK = "owner.lock"
_LOCAL = re.compile(r"local(\[(?P<threads>\d+|\*)(, *(?P<failures>\d+))?\])?")
_STRAY = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONSTARTUP"),
    *("SPARK_HOME", "SPARK_LOCAL_DIRS", "SPARK_DIST_CLASSPATH", "SPARK_MASTER", "SPARK_REMOTE"),
    *("SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "PYSPARK_SUBMIT_ARGS", "CLASSPATH"),
    *JAVA_OPTIONS,
)
"""Environment variables that a shell may have set for another Spark. HADOOP_CONF_DIR, YARN_CONF_DIR
and SPARK_CONF_DIR are kept, because Spark needs them to find a cluster; settings of Rewindow
override theirs.
"""


def spark_settings(
    config: Config,
    *,
    needed: Mapping[str, str] = {},
    quick: bool = False,
    archive: bool = True,
    cores_max: int | None = None,
) -> dict[str, str]:
    """Returns the settings with which every Spark of this project starts.

    Args:
        config: settings with the jars, the state and the master.
        needed: settings that the recovery mode requires (`Mode.spark_settings`); another value in
            rewindow.toml is an error.
        quick: compile with the JVM's first compiler only: a short job starts sooner, a long one is
            slower.
        archive: use the class archive if it exists (rewindow/spark/archive.py).
        cores_max: largest number of cores; None for all that the settings allow.

    Raises:
        ResourceError: Delta's jars are not in their folder.
        InputError: a setting in rewindow.toml contradicts the recovery mode.
    """
    given = dict(config.spark.conf)
    settings = _base(config) | _delta(config)
    if threads := local_threads(config.spark.master):
        threads = min(threads, cores_max or threads)
        settings |= _loopback(config, threads)
        settings["spark.master"] = _local_master(config.spark.master, threads)
    elif cores_max is not None:
        given |= _cluster_limit(config.spark.master, given, cores_max)
    options = f"{_driver_options(config, quick, archive)} {given.pop(DRIVER_OPTIONS, '')}"
    settings |= given | {DRIVER_OPTIONS: options.strip()}
    _refuse_contradiction(given, needed)
    _refuse_retries(config.spark.master, needed)
    return {**settings, **needed}


def spark_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment for a process that runs Spark: the current one, without variables
    that interfere with Spark.

    Raises:
        ResourceError: Java 17 is missing.
    """
    source = os.environ if environment is None else environment
    kept = {name: value for name, value in source.items() if name not in _STRAY}
    java = find_java()
    bins = (Path(sys.executable).parent, java / "bin")
    return kept | {
        "JAVA_HOME": str(java),
        "PATH": os.pathsep.join([*map(str, bins), kept.get("PATH", os.defpath)]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        "TZ": "UTC",
    }


def spark_submit() -> Path:
    """Returns the spark-submit of the current Python environment, never another one on PATH."""
    return Path(sys.executable).with_name("spark-submit")


def local_threads(master: str) -> int:
    """Returns the number of threads of a local master; 0 for a cluster.

    >>> local_threads("local[4]"), local_threads("local"), local_threads("spark://host:7077")
    (4, 1, 0)
    """
    found = _LOCAL.fullmatch(master)
    if not found:
        return 0
    threads = found["threads"] or "1"
    return (os.cpu_count() or 1) if threads == "*" else int(threads)


def _local_master(master: str, threads: int) -> str:
    """Returns a local master with another number of threads.

    >>> _local_master("local[*, 3]", 2), _local_master("local[2]", 1)
    ('local[2,3]', 'local[1]')
    """
    found = _LOCAL.fullmatch(master)
    failures = found["failures"] if found else None
    return f"local[{threads},{failures}]" if failures else f"local[{threads}]"


def _cluster_limit(master: str, given: Mapping[str, str], cores_max: int) -> dict[str, str]:
    """Returns the settings with which an application uses at most a number of cores of a cluster.

    A standalone cluster limits cores. YARN and Kubernetes limit executors, each of which has
    `spark.executor.cores`, 1 by default.

    Raises:
        InputError: a single executor has more cores.
    """
    per_executor = int(given.get("spark.executor.cores", 1))
    if per_executor > cores_max:
        raise InputError(
            f"cores_max is {cores_max}, but an executor has {per_executor} cores",
            hint=f"Allow at least {per_executor} cores, or set a smaller spark.executor.cores in "
            "[spark.conf] of rewindow.toml.",
        )
    if master.startswith("spark://"):
        names: tuple[str, ...] = ("spark.cores.max",)
        most = cores_max
    else:
        names = ("spark.executor.instances", "spark.dynamicAllocation.maxExecutors")
        most = cores_max // per_executor
    limits = {}
    for name in names:
        limits[name] = str(min(most, int(given.get(name, most))))
    return limits


def scratch_folder(config: Config) -> Path:
    """Returns the folder for temporary files of Spark in this process and its jobs.

    It is always on this machine.
    """
    name = f"{socket.gethostname()}-{_short_place()}-{os.getpid()}"
    return (config.state / "tmp" / name).local()


def make_scratch(config: Config) -> None:
    """Creates the scratch folder of this process, and deletes the folders of processes that have
    ended on this host.
    """
    own = scratch_folder(config)
    own.mkdir(parents=True, exist_ok=True)
    lock_until_exit(own / _LOCK)
    host = socket.gethostname()
    owner = re.compile(rf"{re.escape(host)}(?:-(?P<place>[0-9a-f]{{8}}))?-(?P<pid>\d+)")
    for folder in (config.state / "tmp").folders(f"{host}-*"):
        found = owner.fullmatch(folder.name)
        if found and _has_ended(folder.local(), found["place"], int(found["pid"])):
            folder.delete_tree()


def _has_ended(folder: Path, place: str | None, pid: int) -> bool:
    """Returns whether the owner of a scratch folder has ended.

    In another pid namespace, such as another container, its pid is not valid here. Then the
    folder's lock must be free, and the folder must be old in case locks are not shared.
    """
    if place == _short_place():
        return not psutil.pid_exists(pid)
    try:
        made_at = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    except FileNotFoundError:
        return False
    return is_silent(made_at) and not is_locked(folder / _LOCK)


def _short_place() -> str:
    return hashlib.sha256(pid_place().encode()).hexdigest()[:8]


def write_properties(config: Config, settings: Mapping[str, str]) -> Path:
    """Writes settings for spark-submit to a file that only this user can read.

    On a command line, other users could see them.
    """
    path = scratch_folder(config) / f"spark-{uuid.uuid4().hex[:8]}.properties"
    lines = [
        f"{_escaped(key, ' :=#!')}={_escaped(value, '')}\n"
        for key, value in sorted(settings.items())
    ]
    with open(
        os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600),
        "w",
        encoding="utf-8",
    ) as file:
        file.writelines(lines)
    return path


def properties_arguments(properties: Path) -> list[str]:
    """Returns the spark-submit arguments for a file of settings.

    These settings override those of a cluster.
    """
    return ["--load-spark-defaults", "--properties-file", str(properties)]


def _escaped(text: str, special: str) -> str:
    """Returns a text escaped for a Java properties file."""
    plain = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    for character in special:
        plain = plain.replace(character, f"\\{character}")
    return f"\\{plain}" if plain.startswith(" ") else plain


def class_archive(config: Config) -> Path:
    """Returns the path of Spark's class archive, which is next to the jars from which it was
    built.
    """
    return config.jars.parent / "spark.jsa"


def usable_archive(config: Config) -> Path | None:
    """Returns the class archive if it is complete. A JVM crashes with a truncated archive."""
    path = class_archive(config)
    try:
        return path if path.stat().st_size == int(path.with_suffix(".bytes").read_text()) else None
    except (OSError, ValueError):
        return None


def _base(config: Config) -> dict[str, str]:
    return {
        "spark.master": config.spark.master,
        "spark.driver.memory": config.spark.driver_memory,
        # State folders are on file systems. If Hadoop's settings name another default, a plain path
        # must still mean a file.
        "spark.hadoop.fs.defaultFS": "file:///",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Write timestamps in the format that delta-rs and pyarrow read, not as INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch_folder(config) / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    }


def _delta(config: Config) -> dict[str, str]:
    missing = missing_jars(config.jars)
    if missing:
        raise ResourceError(
            f'folder of jars "{config.jars}" lacks {", ".join(missing)}',
            hint="Run rewindow jars (in a checkout: make setup).",
        )
    return {
        "spark.jars": ",".join(str(config.jars / name) for name in expected_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # By default reading a log takes 50 tasks, even for a small log.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Delta refuses a version older than the retention of removed files even if all of its files
        # exist. The pinned version of a table in place may be that old.
        f"{_VACUUM}.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    }


def _loopback(config: Config, threads: int) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch_folder(config)),
        "spark.sql.shuffle.partitions": str(2 * threads),
    }


def _driver_options(config: Config, quick: bool, archive: bool) -> str:
    logging = resources.files("rewindow") / "log4j2.properties"
    options = ["-Duser.timezone=UTC", f"-Dlog4j2.configurationFile=file:{logging}"]
    options += [f"-Djava.io.tmpdir={scratch_folder(config)}"]
    if quick:
        # With one compiler, a JVM reserves 48 MB for compiled code. When these are full, it
        # compiles nothing more.
        options += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC"]
    if archive and (found := usable_archive(config)):
        # If the archive does not fit, the JVM starts without it, and no warning is needed.
        options += [
            f"-XX:SharedArchiveFile={found}",
            "-Xshare:auto",
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
        ]
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def _refuse_retries(master: str, needed: Mapping[str, str]) -> None:
    """Rejects a local master with another number of task failures than required, because it
    overrides spark.task.maxFailures.
    """
    found = _LOCAL.fullmatch(master)
    failures = needed.get("spark.task.maxFailures")
    if failures and found and found["failures"] and found["failures"] != failures:
        raise InputError(
            f'setting "spark.master" is {master}, with which Spark runs a task up to '
            f"{found['failures']} times, but the recovery mode needs spark.task.maxFailures = "
            f"{failures}",
            hint=f"Write local[{found['threads']}].",
        )


def _refuse_contradiction(given: Mapping[str, str], needed: Mapping[str, str]) -> None:
    for name, value in needed.items():
        if given.get(name, value) != value:
            raise InputError(
                f'setting "spark.conf.{name}" is {given[name]}, and the recovery mode needs '
                f"{value}",
                hint="Remove it from rewindow.toml.",
            )
