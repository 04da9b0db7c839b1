"""Permissions of local files, set by the JVM itself.

Hadoop runs the program chmod after creating a folder or a file: nine times per Parquet file that
Spark writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "InnerPermissions"
_SOURCE = f"""
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {_CLASS} extends LocalFileSystem {{
    public {_CLASS}() {{
        super(new Raw());
    }}

    public static class Raw extends RawLocalFileSystem {{
        public void setPermission(Path path, FsPermission permission) throws java.io.IOException {{
            java.nio.file.Files.setPosixFilePermissions(
                pathToFile(path).toPath(),
                java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
        }}
    }}
}}
"""


def set_permissions_in_the_jvm(spark: SparkSession) -> None:
    """Replaces the local file system of this JVM by one that sets permissions without a process.

    Spark's own compiler compiles it. Hadoop's cache hands it to all sessions and tasks.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    system = jvm.org.apache.hadoop.fs.FileSystem
    system.closeAll()
    conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    conf.setClassLoader(compiler.getClassLoader())
    conf.set("fs.file.impl", _CLASS)
    made = system.get(jvm.java.net.URI.create("file:///"), conf)
    assert made.getClass().getName() == _CLASS
