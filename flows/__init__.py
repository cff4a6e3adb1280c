"""WHEN: the Prefect flows and the command line that starts them."""
