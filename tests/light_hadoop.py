"""Hadoop's parts of a small Spark job, made light: permissions are set by the JVM itself, and tasks
get few settings.

Hadoop runs the program chmod after creating a folder or a file: nine times per Parquet file that
Spark writes. Every scan and write sends all settings of Hadoop to its tasks, each one compressed;
most of the thousand are defaults of HDFS, YARN and object stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "LightHadoop"
_SOURCE = f"""
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {_CLASS} extends LocalFileSystem {{
    public {_CLASS}() {{
        super(new Raw());
    }}

    public static void drop(Configuration conf, String[] prefixes) {{
        List names = new ArrayList();
        for (Iterator entries = conf.iterator(); entries.hasNext();) {{
            String name = (String) ((Map.Entry) entries.next()).getKey();
            for (int i = 0; i < prefixes.length; i++) {{
                if (name.startsWith(prefixes[i])) {{
                    names.add(name);
                }}
            }}
        }}
        for (int i = 0; i < names.size(); i++) {{
            conf.unset((String) names.get(i));
        }}
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
_UNUSED = (
    *("dfs.", "yarn.", "ipc.", "adl.", "ha.", "nfs.", "rpc.", "seq.", "tfile."),
    *("fs.abfs", "fs.azure", "fs.s3a", "fs.gs", "fs.viewfs", "hadoop.http", "hadoop.kerberos"),
    *(
        "hadoop.registry",
        "hadoop.security",
        "hadoop.zk",
        "mapreduce.jobhistory",
        "mapreduce.reduce",
        "mapreduce.jvm",
    ),
    *("mapreduce.jobtracker", "mapreduce.shuffle", "mapreduce.am", "mapreduce.client"),
)


def make_hadoop_light(spark: SparkSession) -> None:
    """Replaces the local file system of this JVM, and removes settings that no test reads.

    Spark's own compiler compiles the file system. Hadoop's cache hands it to all sessions and
    tasks.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    classes = compiler.getClassLoader()
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    conf = jvm.org.apache.hadoop.conf.Configuration(settings)
    conf.setClassLoader(classes)
    conf.set("fs.file.impl", _CLASS)
    system = jvm.org.apache.hadoop.fs.FileSystem
    system.closeAll()
    made = system.get(jvm.java.net.URI.create("file:///"), conf)
    assert made.getClass().getName() == _CLASS
    prefixes = spark.sparkContext._gateway.new_array(jvm.String, len(_UNUSED))
    for place, prefix in enumerate(_UNUSED):
        prefixes[place] = prefix
    made.drop(settings, prefixes)
