# Sourced by every script: what a user's shell may carry along must not reach our Python, pip, Java and Spark.
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV CONDA_PREFIX
unset PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV PIP_CONSTRAINT PIP_REQUIREMENT PIP_NO_BINARY PIP_ONLY_BINARY
unset UV_PYTHON UV_PROJECT_ENVIRONMENT UV_SYSTEM_PYTHON UV_CONSTRAINT UV_OVERRIDE UV_TARGET UV_PREFIX
unset SPARK_HOME SPARK_CONF_DIR SPARK_LOCAL_DIRS SPARK_DIST_CLASSPATH PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS
unset SPARK_MASTER SPARK_REMOTE SPARK_CONNECT_MODE_ENABLED HADOOP_CONF_DIR CLASSPATH

# uv does not read pip's settings: a company's mirror is handed on.
if [ -z "${UV_DEFAULT_INDEX:-}" ] && [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=$PIP_INDEX_URL; fi
if [ -z "${UV_INDEX:-}" ] && [ -n "${PIP_EXTRA_INDEX_URL:-}" ]; then export UV_INDEX=$PIP_EXTRA_INDEX_URL; fi
# As pip does, it trusts the machine's certificates; and those that pip was given.
export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1}
if [ -z "${SSL_CERT_FILE:-}" ] && [ -n "${PIP_CERT:-}" ]; then export SSL_CERT_FILE=$PIP_CERT; fi
# uv keeps what it fetched where it always does, so that a second clone is quick; without a home, in the project.
if [ -z "${UV_CACHE_DIR:-}" ] && ! mkdir -p "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/uv" 2>/dev/null; then
    export UV_CACHE_DIR=$PWD/.rewindow/uv-cache
fi
export PATH=$PWD/.rewindow/venv/bin:$PATH
