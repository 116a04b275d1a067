"""Faults of a cluster: three brokers and ZooKeeper as processes, killed, stopped and cut off under load.

run.py        the program: rounds of faults, and the verdict (`make faults ROUNDS=200 SEED=7`)
cluster.py    the brokers, each behind proxies of its own: for clients, for other brokers, and between it and ZooKeeper
proxy.py      ports that can be cut or hang
swap.py       another program: a controller that stands still amid a swap of all replicas (`make frozen`)
recorder.py   what passes between brokers
clients.py    producers that count (`CountingProducer.java` does the same), and members of groups
verdict.py    what must hold of what was acknowledged, read and committed
"""
