"""What an administrator's client asks of a cluster: plans of changes and the requests for them, a module per subject.

The commands and the console use it.  A procedure is a coroutine over an `admin.Admin`, whose `ask` the console answers
with its loop and the commands without one (`admin.run_to_end`).  Texts for people are theirs.
"""
