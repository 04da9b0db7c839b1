# One image for Airflow and for Spark, driver and workers: the same Python, Java, jars and code everywhere.
FROM debian:bookworm-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates openjdk-17-jre-headless procps python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 50000 --create-home rewindow

# A company's own authority in the base image counts for uv and requests, too.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt \
    LANG=C.UTF-8 TZ=UTC \
    PATH=/opt/rewindow/.rewindow/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

WORKDIR /opt/rewindow
COPY requirements.lock docker/not-in-image.txt scripts/uv.txt scripts/build.txt /tmp/locks/
RUN python3 -m venv .rewindow/venv \
    && pip install --quiet --no-cache-dir --no-deps --require-hashes --target /tmp/uv -r /tmp/locks/uv.txt \
    && grep -v '^#' /tmp/locks/not-in-image.txt >/tmp/locks/drop \
    && /tmp/uv/bin/uv pip sync --quiet --no-cache --require-hashes /tmp/locks/requirements.lock --python .rewindow/venv/bin/python \
    && /tmp/uv/bin/uv pip uninstall --quiet -r /tmp/locks/drop --python .rewindow/venv/bin/python \
    && python -m compileall -q -j 0 .rewindow/venv/lib \
    && rm -rf /tmp/uv

# Only what the next step needs, so that a change of other code does not repeat it.
COPY rewindow/*.py rewindow/jars.sha256 rewindow/log4j2.properties rewindow/
COPY rewindow/location/*.py rewindow/location/
COPY rewindow/processes/*.py rewindow/processes/
COPY rewindow/progress/*.py rewindow/progress/
COPY rewindow/settings/*.py rewindow/settings/
COPY rewindow/spark/__init__.py rewindow/spark/session.py rewindow/spark/archive.py rewindow/spark/settings.py rewindow/spark/jars.py rewindow/spark/java.py rewindow/spark/
RUN python -m rewindow.spark.jars .rewindow/jars \
    && (python -m rewindow.spark.archive || echo "no class archive: Spark starts without it") \
    && rm -rf .rewindow/state

COPY pyproject.toml setup.py README.md LICENSE rewindow.toml ./
COPY rewindow rewindow
COPY plugins plugins
RUN pip install --quiet --no-cache-dir --no-deps --require-hashes --target /tmp/build -r /tmp/locks/build.txt \
    && PYTHONPATH=/tmp/build pip install --quiet --no-cache-dir --no-deps --no-build-isolation --editable . \
    && rm -rf /tmp/build \
    && python -m compileall -q rewindow

COPY jobs jobs
COPY dags dags
COPY expectations expectations
COPY docker/entrypoint.sh docker/healthy.py docker/init.sh /usr/local/bin/

# A new volume takes over owner and mode of the folder that it is mounted on.
RUN install -d -o rewindow -g rewindow -m 0750 /var/lib/rewindow /var/lib/airflow /var/lib/spark
USER rewindow
ENV AIRFLOW_HOME=/var/lib/airflow REWINDOW_STATE=/var/lib/rewindow REWINDOW_CONFIG=/opt/rewindow/rewindow.toml \
    SPARK_WORKER_DIR=/var/lib/spark SPARK_LOCAL_DIRS=/var/lib/spark PGPASSFILE=/tmp/.pgpass
ENTRYPOINT ["entrypoint.sh"]
CMD ["rewindow", "--help"]
