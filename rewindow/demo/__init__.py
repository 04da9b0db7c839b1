"""The demo: a year of real flights replayed in every mode, killed on the way, recovered, judged,
published, proven.

    show.py                  the order of the chapters
    drill.py                 which step is killed, and how large groups are
    airflow.py               talks to Airflow's API
    watch.py                 follows a replay, sees the kill, times the recovery
    proof.py                 compares each promise with the tables
    console.py               prints to the screen
    start.py                 checks what must exist before the demo starts
    event_time.py            late flights, and the weather's gaps filled
    summary.py, report.py    the table and the page at the end

It uses what every user has: the commands, the DAG `replay_windows`, the library's reading
functions.
"""
