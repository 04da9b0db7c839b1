"""Creates the Spark session of this process. No other module creates one."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.settings.config import Config
from rewindow.spark.java import check_limits
from rewindow.spark.settings import (
    make_scratch,
    properties_arguments,
    spark_environment,
    spark_settings,
    write_properties,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHOLE_STAGE = "spark.sql.codegen.wholeStage"


def spark_session(
    config: Config,
    name: str,
    *,
    quick: bool = False,
    extra_conf: Mapping[str, str] | None = None,
    cores_max: int | None = None,
) -> SparkSession:
    """Returns the Spark session of this process. Starts it if there is none.

    With spark-submit, the JVM is already running with its settings. Then only the settings of a
    session are changed.

    Args:
        config: current settings.
        name: name of the application in Spark.
        quick: for a job of a few seconds (see `spark_settings`).
        extra_conf: settings that override all others.
        cores_max: see `spark_settings`.

    Raises:
        ResourceError: Java 17 is missing, or Delta's jars are not in their folder.
        InputError: the file with the cluster's secret cannot be read.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = spark_settings(config, quick=quick, cores_max=cores_max)
    settings |= _secret(config) | dict(extra_conf or {})
    make_scratch(config)
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_limits(config.spark.driver_memory)
        _prepare_environment()
        _start_jvm(config, settings)
    session = SparkSession.builder.appName(name).config(map=dict(settings)).getOrCreate()
    import delta.exceptions  # noqa: F401  (registers Delta's errors; without it conflicts arrive as bare Java errors)

    return session


def _secret(config: Config) -> dict[str, str]:
    """Returns the settings with which the driver and a cluster authenticate each other; none if no
    secret is configured.
    """
    if config.spark.secret_file is None:
        return {}
    path = config.root / config.spark.secret_file
    try:
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f'file "{path}" of setting "spark.secret_file" cannot be read: {error}'
        ) from error
    if not secret:
        raise InputError(f'file "{path}" of setting "spark.secret_file" is empty')
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
    }


def send_modules(modules: Iterable[ModuleType]) -> None:
    """Makes Spark send definitions of modules, such as Python UDFs, to its workers.

    The workers cannot import applications.
    """
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)


def _start_jvm(config: Config, settings: Mapping[str, str]) -> None:
    """Starts the JVM with its settings in a file, because pyspark would put all of them on its
    command line.
    """
    from pyspark import SparkContext

    properties = write_properties(config, settings)
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
        [*properties_arguments(properties), "pyspark-shell"]
    )
    try:
        SparkContext._ensure_initialized()
    finally:
        del os.environ["PYSPARK_SUBMIT_ARGS"]
        properties.unlink()


def _prepare_environment() -> None:
    wanted = spark_environment()
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)
    time.tzset()


@contextmanager
def whole_stages(spark: SparkSession, *, compiled: bool) -> Iterator[None]:
    """Enables or disables Spark's whole-stage code generation for queries."""
    before = spark.conf.get(_WHOLE_STAGE)
    spark.conf.set(_WHOLE_STAGE, before if compiled else "false")
    try:
        yield
    finally:
        spark.conf.set(_WHOLE_STAGE, before)
