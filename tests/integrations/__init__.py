"""Programs that speak Kafka, as their users run them, each with the broker restarted in between.

`docs/integrations.md` lists them; `test_page.py` holds the page against the files that say which versions are tested.
"""
