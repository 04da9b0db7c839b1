"""Finds and reads the settings file. Environment variables override its values."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from rewindow.errors import InputError
from rewindow.settings.errors import syntax_error

SETTINGS_FILE = "rewindow.toml"
BY_NAME = "applications.NAME"
"""Name for the settings of applications, which are in the same section as the folders in the
file.
"""

_SECTION = re.compile(r"^\s*\[applications[.\]]", re.MULTILINE)
_LIST = re.compile(r"^\s*applications\s*=", re.MULTILINE)


def find_settings(path: Path | str | None) -> Path | None:
    """Returns the absolute path of the given settings file, or of the one that REWINDOW_CONFIG
    names.

    If neither is given, returns the nearest rewindow.toml from the working directory upward; None
    if there is none.

    Raises:
        InputError: the given file does not exist.
    """
    given = path or os.environ.get("REWINDOW_CONFIG")
    if given:
        found = Path(given)
        if not found.is_file():
            raise InputError(f'settings file "{given}" does not exist')
        return found.resolve()
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / SETTINGS_FILE).is_file():
            return folder / SETTINGS_FILE
    return None


def read_settings(path: Path) -> dict[str, Any]:
    """Returns the contents of a settings file."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        words, detail = syntax_error(text, error)
        hint = 'Put texts in quotes, such as name = "text". A section starts with [NAME].'
        if _SECTION.search(text) and _LIST.search(text):
            hint = (
                "Folders and settings of applications must be in one section: instead of "
                "applications = [...], use "
            )
            hint += "[applications] with folders = [...] below it."
        raise InputError(
            f'settings file "{path}" is not valid TOML: {words}',
            detail=detail,
            hint=hint,
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f'settings file "{path}" is not UTF-8',
            hint="Save the file in UTF-8.",
        ) from error
    except OSError as error:
        raise InputError(
            f'settings file "{path}" cannot be read: {os.strerror(error.errno or 0).lower()}'
        ) from error


def override_settings(values: dict[str, Any], environment: Any) -> None:
    """Overrides values of the settings file with environment variables."""
    sections = {"STATE", "LEDGER", "EXPECTATIONS", "SPARK", "REPLAY", "PUBLICATION", "AIRFLOW"}
    for variable, text in environment.items():
        parts = variable.removeprefix("REWINDOW_").split("__")
        if not variable.startswith("REWINDOW_") or parts[0] not in sections:
            continue
        keys = [part.lower() for part in parts]
        if keys[:2] == ["spark", "conf"] and len(keys) > 2:
            keys[2:] = ["__".join(parts[2:])]  # Spark's names are case-sensitive.
        target = values
        for key in keys[:-1]:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                raise InputError(
                    f'cannot apply variable "{variable}": setting "{key}" is not a section'
                )
        target[keys[-1]] = text


def part_applications(values: dict[str, Any]) -> dict[str, Any]:
    """Divides the section `applications` of settings into folders and the settings of each
    application.
    """
    section = values.get("applications")
    if not isinstance(section, dict):
        return values
    rest = {name: value for name, value in values.items() if name != "applications"}
    folders = {"applications": section["folders"]} if "folders" in section else {}
    return {
        **rest,
        **folders,
        BY_NAME: {name: settings for name, settings in section.items() if name != "folders"},
    }
