-- Beside Airflow's database, made from POSTGRES_DB: the ledger's.
CREATE DATABASE rewindow;
