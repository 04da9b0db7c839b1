"""The jars of Delta. The Ivy resolver that is part of Spark downloads them once. They are verified
and then used offline.

`jars.sha256` lists the jars with their checksums. Of the jars `delta-spark`, only the one for the
installed line of PySpark is used. A jar is moved into its folder only after
verification, so an interrupted download never counts as complete.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rewindow.errors import ResourceError
from rewindow.spark.java import JAVA_OPTIONS, find_java

_GROUPS = {"delta": "io.delta", "unitycatalog": "io.unitycatalog"}
_SUPPORTED = "'pyspark>=4.1,<=4.2.0'"
_JAR = re.compile(r"(?P<module>.+)-(?P<revision>\d[\w.]*)\.jar")


def expected_jars() -> dict[str, str]:
    """Returns the SHA-256 of each jar by its file name.

    Raises:
        ResourceError: no jar is made for the installed PySpark.
    """
    spark = version("pyspark")
    own = f"delta-spark_{'.'.join(spark.split('.')[:2])}_"
    lines = resources.files("rewindow").joinpath("jars.sha256").read_text().splitlines()
    jars = {}
    others = []
    for line in filter(str.strip, lines):
        digest, name = line.split()
        if not name.startswith("delta-spark_") or name.startswith(own):
            jars[name] = digest
        else:
            others.append(name)
    if not any(name.startswith(own) for name in jars):
        lines_of_spark = [name.split("_")[1] for name in others]
        raise ResourceError(
            f"PySpark {spark} is installed, and Delta's jars are for {' or '.join(lines_of_spark)}",
            hint=f"Install a supported version: pip install {_SUPPORTED}",
        )
    return jars


def missing_jars(folder: Path) -> list[str]:
    """Returns the names of jars that are missing from the folder. Only names are checked, because
    this runs at every start.
    """
    return [name for name in expected_jars() if not (folder / name).is_file()]


def wrong_jars(folder: Path) -> list[str]:
    """Returns the names of jars that are missing or do not match `jars.sha256`."""
    expected = expected_jars()
    return [name for name in expected if _sha256(folder / name) != expected[name]]


def fetch_jars(folder: Path) -> list[str]:
    """Downloads every missing or damaged jar into the folder and returns their names.

    Raises:
        ResourceError: the resolver could not download a jar; the folder is unchanged.
        ResourceError: a downloaded jar does not have the expected checksum; it was deleted.
    """
    wanted = wrong_jars(folder)
    if not wanted:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    expected = expected_jars()
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
        _resolve(Path(work), wanted)
        for name in wanted:
            fetched = Path(work) / "jars" / name
            if _sha256(fetched) != expected[name]:
                raise ResourceError(
                    f'jar "{name}" has the wrong checksum',
                    detail=f"Its SHA-256 is {_sha256(fetched)}, expected {expected[name]}.",
                    hint="Check the mirror that Ivy uses. The jar was not stored.",
                )
            os.replace(fetched, folder / name)
    return wanted


def _resolve(work: Path, names: list[str]) -> None:
    """Runs Ivy with a list of the jars, without their dependencies, because Spark already has
    these.
    """
    lines = []
    for match in filter(None, map(_JAR.fullmatch, names)):
        group = _GROUPS[match["module"].split("-")[0]]
        lines.append(
            f'<dependency org="{group}" name={quoteattr(match["module"])}'
            f' rev={quoteattr(match["revision"])} transitive="false" conf="default->master"/>'
        )
    head = '<ivy-module version="2.0"><info organisation="rewindow" module="jars"/>'
    (work / "ivy.xml").write_text(
        f"{head}<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )
    # Ivy's folder is below user.home. With user.home in the work folder, no files remain in the
    # user's home.
    command = [
        *(str(find_java() / "bin" / "java"), f"-Duser.home={work}", "-jar", str(_ivy_jar())),
        *(
            "-m2compatible",
            "-warn",
            "-cache",
            str(work / "cache"),
            "-ivy",
            str(work / "ivy.xml"),
            "-types",
            "jar",
        ),
        *("-retrieve", str(work / "jars" / "[artifact]-[revision].[ext]")),
        *(("-settings", settings) if (settings := os.environ.get("REWINDOW_IVY_SETTINGS")) else ()),
    ]
    plain = {name: value for name, value in os.environ.items() if name not in JAVA_OPTIONS}
    # Java options of the shell may contain proxy settings that are needed, or options with which
    # Java does not start. So Ivy runs with them first, then without.
    for environment in (dict(os.environ), plain):
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if all((work / "jars" / name).is_file() for name in names):
            return
    raise ResourceError(
        f"{len(names)} of Delta's jars could not be fetched: {', '.join(names)}",
        detail=" ".join((done.stdout + done.stderr).split())[-600:],
        hint="Look at the connection to Maven Central, or name a mirror's Ivy settings file by "
        "REWINDOW_IVY_SETTINGS.",
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations if spec else None) or []:
        for jar in sorted((Path(place) / "jars").glob("ivy-*.jar")):
            return jar
    raise ResourceError(
        "pyspark is not installed with its jars",
        hint="If pyspark-client is installed, it has replaced files of pyspark (Airflow's Spark "
        "provider requires it). Run: pip uninstall pyspark-client; then: pip install "
        f"--force-reinstall --no-deps {_SUPPORTED}",
    )


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m rewindow.spark.jars FOLDER")
    try:
        fetched = fetch_jars(Path(sys.argv[1]))
    except ResourceError as error:
        sys.exit(str(error))
    print(f"{len(fetched)} jars fetched, {len(expected_jars())} in place")
