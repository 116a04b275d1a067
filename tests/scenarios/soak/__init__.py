"""A soak of groups: real consumers of every kind join, leave, stop and die at random, and a history of it is judged.

run.py        the program: a broker, a producer for each group, and what happens to its members (`python -m
              tests.scenarios.soak.run --seconds 300 --seed 7`)
plan.py       which groups there are and which kinds of members they have
member.py     a member as a process: what it owns, got and committed, one line each (`SoakMember.java` does the same)
history.py    the lines of all members together, and the rules that they must keep
"""
