"""Rewindow inside Airflow: operators, forms, links and pages. DAGs import from here; nothing heavy is imported at parse."""
