#!/usr/bin/env python3
"""Exits with 0 when Airflow's API says that the component named is healthy."""

from __future__ import annotations

import json
import sys
from urllib.request import urlopen

if __name__ == "__main__":
    with urlopen("http://api-server:8080/api/v2/monitor/health", timeout=5) as answer:
        sys.exit(json.load(answer)[sys.argv[1]]["status"] != "healthy")
