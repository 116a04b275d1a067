"""Opening logs, after a clean stop and after any other."""
