"""Rewindow inside Airflow: operators, forms, links and pages. DAGs import from here; parsing imports nothing heavy."""
