"""What happened and what is there: reads tables and ledger, changes nothing, and starts no JVM."""
