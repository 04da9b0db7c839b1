"""The demo: replays a year of real flights in every mode, kills jobs, recovers, checks, publishes
and verifies the results.

    show.py                  the sequence of the chapters
    drill.py                 the steps at which jobs are killed, and the size of groups
    airflow.py               client of Airflow's API
    watch.py                 follows a replay, detects the kill, measures the recovery
    proof.py                 compares each promise with the tables
    console.py               prints to the screen
    start.py                 checks the requirements before the demo starts
    event_time.py            late flights, and filled gaps of the weather
    summary.py, report.py    the table and the page at the end

It only uses public interfaces: the commands, the DAG `replay_windows`, and the library's functions
that read results.
"""
