"""Applications by name, those that streams' settings make, and the versions of their code."""
