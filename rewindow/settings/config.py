"""Settings from `rewindow.toml`. Environment variables override the file, and flags override both.

The path of the file is $REWINDOW_CONFIG; otherwise the file is searched from the working directory
upward. The name of an environment variable is `REWINDOW_`, then section and key, with two
underscores between levels: REWINDOW_STATE, REWINDOW_SPARK__MASTER.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rewindow.errors import InputError
from rewindow.location import Location, location
from rewindow.names import (
    check_name,
    check_replay_id,
    check_stream,
    did_you_mean,
    files_name,
    windows_name,
)
from rewindow.settings.conditions import CONDITIONS, ConditionKind
from rewindow.settings.errors import check_keys, wrong_setting
from rewindow.settings.file import (
    BY_NAME,
    find_settings,
    override_settings,
    part_applications,
    read_settings,
)
from rewindow.settings.types import (
    DurationUs,
    Folder,
    LocationSetting,
    Section,
    above_zero,
    known_encoding,
    zero_or_more,
)
from rewindow.windows import Grid, format_duration

HEARTBEAT = "heartbeat_"
FILLED = "filled_"
WINDOWS = "windows_"
"""Prefixes of the names of applications that a stream's settings define; the rest is the stream's
name.
"""
JARS = ".rewindow/jars"
"""Default folder of Delta's jars."""


class LatencyConfig(Section):
    """How latencies are computed from statistics. Only reports depend on it.

    Rules: L53, L54
    """

    skew_samples: int = Field(default=100, ge=0)
    """Number of heartbeats in the average that corrects a clock; 0 turns the correction off."""
    heartbeat_timeout_ms: int = Field(default=30_000, ge=0)
    """Larger corrections are reported as faults. In the live view, a larger distance from an
    upstream operator replaces the measured latency."""
    windows_kept: int = Field(default=1_000, ge=1)
    """Number of windows whose end times the live view keeps."""
    average_samples: int = Field(default=10, ge=1)
    """Number of known values in a moving average of a latency."""


class StreamConfig(Section):
    """How a stream is recorded. Durations are set by name (`width`) and read as microseconds
    (`width_us`).
    """

    source: str
    """A file, folder or glob pattern, `package:NAME/PATH` for a file inside an installed Python
    package, a generator, or `errors:APPLICATION.OPERATOR.PORT` for the published tuples of an error
    port, which are fed back."""
    format: str | None = None
    """csv, json, parquet, feather, delta, operator or generator, or a custom source; by default
    determined from the name of the source. Generators need it.
    """
    columns: str | None = None
    """Columns to read, as DDL such as "origin STRING, dep_delay INT"; by default all: those of CSV
    as text, those of Parquet, Feather and Delta with their types. JSON needs this setting.
    """
    delimiter: str = ","
    """Separator of the columns of a CSV source."""
    decimal: Literal[".", ","] = "."
    """Decimal separator in numbers of a CSV source; with a comma, points may separate groups of
    three digits.
    """
    header: bool = True
    """Whether the first row of a CSV source names its columns; without one, `columns` names all of
    them in order.
    """
    encoding: Annotated[str, AfterValidator(known_encoding)] = "utf-8"
    """Encoding of a CSV or JSON source; rows that cannot be decoded go to quarantine."""
    new_columns: Literal["report", "take"] = "report"
    """Columns that appear in the source later, if neither `columns` nor `keep` names the wanted
    ones: report them, or record them ("take"), with null in earlier rows.
    """
    source_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that only one source supports, such as a custom source or an operator, which checks
    them.
    """
    changed_rows: Literal["refuse", "skip"] = "refuse"
    """Commits of a Delta source that change or delete rows: stop with an error ("refuse"), or skip
    them, including the rows that they added.
    """
    copies: bool = Field(True, alias="copy")
    """Whether the tuples of a Delta source are copied. If not, windows are sealed over the table
    where it is, and replays read it there.

    Rules: X57
    """
    late_windows_max: int = Field(default=1_000, ge=0)
    """Number of sealed windows of a table in place that one recording may seal again; with more,
    `arrived_at` is probably not the arrival time.
    """
    keep: list[str] | None = None
    """Columns of the source that become event columns; by default all of them."""
    select: dict[str, str] = Field(default_factory=dict)
    """Additional event columns, as name = SQL expression over the columns of the source; a column
    with the same name is replaced.
    """
    arrived_at: str
    """SQL expression for the arrival timestamp, over the source's columns."""
    event_at: str | None = None
    """Name of the event column that is the event timestamp."""
    keys: list[str] = Field(default_factory=list)
    interval_us: Annotated[DurationUs, AfterValidator(above_zero)] | None = Field(
        None,
        alias="interval",
    )
    """A silence of a key that is longer than this plus `slack` is a gap, which timers fill.

    Rules: H20, G12
    """
    cadence_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="cadence")
    """Expected period between rows of a key in event time: a missing row is a gap; by default
    `interval`. Without both, `rewindow gaps` learns it from the recorded rows, and reports that.
    """
    expected_keys: list[str | list[str]] = Field(default_factory=list)
    """Keys that must appear, even if they have never sent a tuple: a value for each of `keys`, as
    in [["JFK", "AA"], ["LGA", "UA"]], or with one key ["JFK", "LGA"].
    """
    slack_us: Annotated[DurationUs, AfterValidator(zero_or_more)] = Field(0, alias="slack")
    """How long a timer waits after its scheduled time.

    Rules: H23
    """
    max_jump_us: Annotated[DurationUs, AfterValidator(zero_or_more)] | None = Field(
        None,
        alias="max_jump",
    )
    """A tuple further ahead of all others is an error tuple and does not advance clocks or
    watermarks; by default off.

    Rules: E50
    """
    suite: str | None = None
    """Suite for the stream with timers, `heartbeat_<stream>`; by default `heartbeat`."""
    statistics_of: str | None = Field(None, min_length=1)
    """The stream contains the statistics of a live run of this application, or of the graph in this
    JSON file, whose name ends in ".json".
    """
    fill: dict[str, Any] | None = None
    """How missing rows are filled, in a separate section, [streams.NAME.fill]: the properties of
    `FillGaps`. It defines the application `filled_NAME`.
    """
    windows: dict[str, Any] | None = None
    """Windows over event time, in a separate section, [streams.NAME.windows]: the properties of
    `AggregateWindows`. It defines the application `windows_NAME`.
    """
    width_us: DurationUs = Field(500_000, alias="width")
    origin: str = "1970-01-01T00:00:00Z"
    zone: str = "UTC"
    null_values: list[str] = Field(default_factory=lambda: [""])
    malformed_max_share: float = Field(default=0.01, ge=0, le=1)
    """If at least ten rows and a larger share than this are malformed, a recording stops before it
    seals anything; 1 allows any share.
    """
    gap_windows_max: int = Field(default=100_000, ge=1)
    """Number of consecutive windows that may be empty between two tuples; with more, an arrival
    must be wrong.
    """
    on_gap: Literal["refuse", "quarantine"] = "refuse"
    """Whether a longer gap stops the recording, or the rows on its smaller side go to quarantine as
    malformed ones, up to `malformed_max_share`. A gap after the last sealed window always stops it:
    the source may have been silent.
    """
    sealed_to: str | None = None
    """Windows are sealed up to this time (exclusive), even if they have no tuple; by default up to
    the newest tuple's time, so that its window stays open.
    """
    seal_after_us: Annotated[DurationUs, AfterValidator(zero_or_more)] = Field(
        0,
        alias="seal_after",
    )
    """How long after a window's end its tuples may still arrive. Windows are sealed up to this much
    before the newest tuple, or before the end of the interval of the DAG record_streams.
    """

    @field_validator("expected_keys", mode="after")
    @classmethod
    def _check_expected(
        cls,
        given: list[str | list[str]],
        info: ValidationInfo,
    ) -> list[str | list[str]]:
        check_keys(given, info.data.get("keys", []))
        return given

    @property
    def expected_values(self) -> list[list[str]]:
        """The expected keys, with one value for each key column."""
        return [[key] if isinstance(key, str) else key for key in self.expected_keys]

    @property
    def grid(self) -> Grid:
        """The window grid of the stream."""
        from rewindow.windows import parse_time

        if self.width_us % 1000:
            raise InputError(
                f"window width of {format_duration(self.width_us)} is not a whole number of "
                "milliseconds"
            )
        origin_us = parse_time(self.origin)
        if origin_us % 1000:
            raise InputError(f"window origin {self.origin} is not a whole number of milliseconds")
        return Grid(self.width_us // 1000, origin_us // 1000)


class SparkConfig(Section):
    """Where and how Spark runs."""

    master: str = "local[2]"
    driver_memory: str = "2g"
    jars: str | None = None
    """Folder of Delta's jars; by default `.rewindow/jars` in the folder of the settings file."""
    conf: dict[str, str] = Field(default_factory=dict)
    secret_file: Path | None = None
    """File with the secret that master, workers and drivers of a standalone cluster share. With it
    they authenticate each other and encrypt their communication (`spark.authenticate`). The job
    reads it, so no command line shows it.
    """


class ReplayConfig(Section):
    """Defaults of a replay."""

    group_seconds: float = Field(default=20.0, gt=0)
    """Target duration of a commit group."""
    group_windows: int | None = Field(default=None, ge=1)
    """A fixed number of windows per commit group instead."""
    loss_windows_max: int | None = Field(default=None, ge=1)
    """At most once: largest number of windows in a commit group, which is what a crash can cost an
    output.

    Rules: X1
    """
    errors_max: int | None = Field(default=None, ge=0)
    """Number of error tuples that an error port may emit in a window; with one more the replay ends
    there.

    Rules: O71
    """
    containers_at_once: int = Field(default=1, ge=1)
    """Number of containers of one replay that may run at the same time, if none of them reads
    another. Each one is a Spark job with a separate driver.
    """
    cores_max: int | None = Field(default=None, ge=1)
    """Largest number of cores that Spark uses for a job of a replay, from its next attempt on; by
    default those of `[spark] master`.
    """
    quarantine_failing: bool = False
    """Exactly once and at least once: a tuple at which an operator fails goes to the error table
    `OPERATOR.PORT.failed`, at most `errors_max` in a window, and the commit group is computed
    without it.

    Rules: R93
    """
    attempts: int = Field(default=3, ge=1)
    """Number of failed attempts without a new checkpoint that are allowed; with one more a replay
    is given up.

    Rules: R90, R91
    """
    allow_affected: bool = False
    """Also start from a state that lacks windows which at most once lost, or that is stale.

    Rules: R14
    """
    inline_state_bytes: int = Field(default=4 << 20, ge=0)
    """An operator's state up to this size is stored in a cell of its checkpoint, a larger one in
    files, which Spark writes and reads without the driver.
    """
    file_bytes: int = Field(default=64_000_000, ge=0)
    """After the last group is committed, small adjacent files of an output are merged up to this
    size; 0: never.
    """
    stuck_seconds: float = Field(default=600.0, gt=0)
    """An attempt that makes no progress for longer than this, and for longer than `stuck_factor`
    times the time of a group, is stuck. It ends itself, and the replay is resumed once. In at most
    once, Rewindow only logs a warning.

    Rules: R92
    """
    stuck_factor: float = Field(default=10.0, ge=1)
    """See `stuck_seconds`."""
    drills: bool = False
    """Whether `rewindow drill` may kill jobs on purpose, and whether the form of `replay_windows`
    offers crash points, at which the job is killed.
    """
    verify_inputs: bool = True
    """Compare the bytes of input files with their checksums before they are read; names and sizes
    are always compared.
    """


class PublicationConfig(Section):
    """How published tables are retained."""

    undo_days: int = Field(default=30, ge=1, le=36_500)
    """Number of days for which published tables keep what an undo needs: their log and their
    removed files.
    """


class AirflowConfig(Section):
    """Defaults of the DAGs."""

    application: str | None = None
    """The application that `replay_daily` replays by default, and the first one in the form of
    `replay_windows`. If not set: the application in `applications`, if there is exactly one;
    otherwise each run must name one.
    """
    repairs: bool | Literal["approve"] = False
    """Whether `repair_windows` of `fill_heartbeat_gaps` repairs windows that were published from
    inputs that have changed since, for example because of late tuples. "approve": it asks a person
    first. By default, its log lists the necessary repairs.
    """
    notifiers: list[str] = Field(default_factory=list)
    """Notifiers of Airflow that are called about conditions, such as a failed gate: objects by
    name, as MODULE:NAME, which Airflow's processes can import.
    """
    notify_on: list[ConditionKind] = Field(default_factory=lambda: [*CONDITIONS])
    """The conditions about which these notifiers are called; by default all."""


class TargetConfig(Section):
    """A target to which published windows are delivered: `[targets.NAME]`."""

    format: Literal["postgresql", "csv", "parquet", "python"]
    """A table in PostgreSQL, a folder with a CSV or Parquet file per window, or a Python class of
    the project."""
    url_env: str | None = None
    """PostgreSQL: name of the environment variable with the URL of the database."""
    table: str | None = None
    """PostgreSQL: name of the table, with or without its schema."""
    folder: str | None = None
    """CSV and Parquet: a folder, with a subfolder for each output."""
    source: str | None = None
    """Python: a subclass of `rewindow.delivery.Target`, as FILE:CLASS."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Python: values of the attributes that the class declares."""
    at_least_once: bool = False
    """Accepts a target that does not list its windows. After a crash, its last windows are written
    twice."""
    outputs: list[Annotated[str, Field(pattern=r"^[^.]+\.[^.]+$")]] = Field(default_factory=list)
    """Outputs that `rewindow deliver` and the DAG `deliver_windows` deliver to this target, as
    APPLICATION.OUTPUT."""


@dataclass(frozen=True)
class Delivery:
    """An output, and a target to which it is delivered.

    Attributes:
        output: the output, as `application.output`.
        target: section [targets.NAME] of the settings.
    """

    output: str
    target: str


class OutputConfig(Section):
    """Attributes of an output: `[applications.NAME.outputs.OUTPUT]`."""

    source: str | None = None
    """In an application without code, the operator or `operator.port` that emits its tuples."""
    key: list[str] | None = None
    """In an application without code, columns that identify a tuple within its window."""
    sorted_by: list[str] | None = None
    """Columns by which rows are sorted in each of its files, instead of those in the code; an empty
    list means unsorted.
    """
    tolerance: float | None = Field(default=None, ge=0)
    """Tolerance within which two of its floating-point values count as equal, instead of that in
    the code.
    """
    suite: str | None = None
    """Suite that checks it, instead of that in the code."""


class ApplicationConfig(Section):
    """Attributes of an application, and properties and attributes of its operators:
    `[applications.NAME]`.

    With a `window` it defines an application without code: each operator then names its `operator`
    of the library and its `inputs`, each output its `source` and `key`.
    """

    window: str | None = None
    """Width of the windows of an application without code; that of its streams."""
    origin: str = "1970-01-01T00:00:00Z"
    """Start of a window of an application without code; that of its streams."""
    checkpoint_windows: int | None = Field(default=None, ge=1)
    """Number of windows from one checkpoint to the next, instead of that in its code."""
    strict_outputs: bool | None = None
    """Whether an operator without readers is an error."""
    operators: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By operator, `[applications.NAME.operators.OPERATOR]`: properties and attributes, sections of
    its error ports."""
    outputs: dict[str, OutputConfig] = Field(default_factory=dict)
    """By output, `[applications.NAME.outputs.OUTPUT]`: `sorted_by`, `tolerance` and
    `suite`."""


class Config(Section):
    """All settings. Paths are absolute after loading.

    In the file, `applications` is a list of folders, or a section with `folders` and a section for
    each application.
    """

    state: LocationSetting = Field(default_factory=lambda: location(".rewindow/state"))
    applications: list[Folder] = Field(default_factory=lambda: [Path("jobs/applications")])
    expectations: Folder = Path("expectations")
    ledger: str | None = None
    spark: SparkConfig = Field(default_factory=SparkConfig)
    replay: ReplayConfig = Field(default_factory=ReplayConfig)
    publication: PublicationConfig = Field(default_factory=PublicationConfig)
    airflow: AirflowConfig = Field(default_factory=AirflowConfig)
    latency: LatencyConfig = Field(default_factory=LatencyConfig)
    streams: dict[str, StreamConfig] = Field(default_factory=dict)
    targets: dict[str, TargetConfig] = Field(default_factory=dict)
    application_settings: dict[str, ApplicationConfig] = Field(default_factory=dict, alias=BY_NAME)
    _root: Path = PrivateAttr(default_factory=Path.cwd)
    _file: Path | None = PrivateAttr(default=None)

    _parted = model_validator(mode="before")(part_applications)

    @classmethod
    def load(cls, path: Path | str | None = None, **flags: Any) -> Config:
        """Returns the current settings.

        Raises:
            InputError: the file is missing, is not TOML, or has an unknown key or a wrong value.
        """
        found = find_settings(path)
        values = read_settings(found) if found else {}
        override_settings(values, os.environ)
        values.update({key: value for key, value in flags.items() if value is not None})
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            wrong = [wrong_setting(one, cls) for one in error.errors()]
            primary, hint = (text.replace(BY_NAME, "applications") for text in wrong[0])
            also = "; ".join(
                dict.fromkeys(text.replace(BY_NAME, "applications") for text, _ in wrong[1:])
            )
            detail = (
                f"Read from {found or 'the environment'}.{f' Wrong too: {also}.' if also else ''}"
            )
            raise InputError(primary, detail=detail, hint=hint) from error
        for name in config.streams:
            check_name("stream", name)
        for name in config.application_settings:
            check_name("application", name)
        config._root = found.parent.resolve() if found else Path.cwd()
        config._file = found
        return config._absolute()

    def _absolute(self) -> Config:
        root = self._root
        moved = self.model_copy(
            update={
                "state": location(root) / self.state.uri,
                "expectations": root / self.expectations,
                "applications": [root / folder for folder in self.applications],
            }
        )
        moved._root = root
        moved._file = self._file
        return moved

    @property
    def root(self) -> Path:
        """The folder of the settings file."""
        return self._root

    @property
    def file(self) -> Path | None:
        """The settings file; None if there is none."""
        return self._file

    @property
    def ledger_url(self) -> str:
        """The SQLAlchemy URL of the ledger.

        By default, the ledger is SQLite in the state folder.
        """
        return self.ledger or f"sqlite:///{(self.state / 'ledger.sqlite').local()}"

    @property
    def jars(self) -> Path:
        """The folder of Delta's jars."""
        return self.root / (self.spark.jars or JARS)

    @property
    def results(self) -> Location:
        """The folder of gate results, Data Docs, certificates and pages."""
        return self.state / "results"

    @property
    def quarantine_table(self) -> Location:
        """The table of quarantined tuples of all streams."""
        return self.state / "streams" / "quarantine"

    @property
    def made_applications(self) -> dict[str, str]:
        """The applications that settings of streams define, with the stream of each."""
        beats = {}
        filled = {}
        windows = {}
        for name, settings in self.streams.items():
            if settings.interval_us:
                beats[f"{HEARTBEAT}{name}"] = name
            if settings.fill is not None:
                filled[f"{FILLED}{name}"] = name
            if settings.windows is not None:
                windows[f"{WINDOWS}{name}"] = name
        return beats | filled | windows

    @property
    def defined_applications(self) -> list[str]:
        """The applications that sections of the settings define without code."""
        sections = self.application_settings.items()
        return [name for name, settings in sections if settings.window is not None]

    def stream(self, name: str) -> StreamConfig:
        """Returns a stream's settings.

        Raises:
            InputError: no stream of this name is in rewindow.toml.
        """
        if name not in self.streams:
            known = ", ".join(sorted(self.streams)) or "none"
            hint = f"{did_you_mean(name, self.streams)}Known in rewindow.toml: {known}."
            if not self.streams:
                hint = (
                    f"rewindow.toml has no stream: write [streams.{name}] with source and "
                    "arrived_at into it; "
                    "`rewindow init FILE` in an empty folder writes one to copy."
                )
            raise InputError(f'stream "{name}" is unknown', hint=hint)
        return self.streams[name]

    def stream_table(self, name: str) -> Location:
        """The folder of a recorded or published stream. Output O of application A is the stream
        "A.O".

        Every name becomes a path here or in `replay_root`, so names that could lead to another
        folder are rejected here.
        """
        return self.state / "streams" / check_stream(name)

    def deliveries(self, output: str = "") -> list[Delivery]:
        """Returns the deliveries in the sections [targets.NAME], in order.

        Args:
            output: an output, an application, or an empty text for all outputs.
        """
        found = []
        for target, settings in self.targets.items():
            for name in settings.outputs:
                if output in ("", name, name.partition(".")[0]):
                    found.append(Delivery(name, target))
        return found

    def windows_table(self, name: str) -> Location:
        """The folder of a stream's table of sealed windows."""
        return self.stream_table(windows_name(name))

    def files_table(self, name: str) -> Location:
        """The folder of a stream's table of data files."""
        return self.state / "streams" / files_name(name)

    def checkpoints_table(self, application: str) -> Location:
        """The folder of an application's published checkpoints."""
        return self.stream_table(f"{application}.checkpoints")

    def replay_root(self, replay_id: str) -> Location:
        """The folder of a replay's staged tables, facts and checkpoints."""
        return self.state / "replays" / check_replay_id(replay_id)
