"""What the console can change: each action has a plan, which says what would happen, and then does what was shown.

Actions are requests of Kafka's protocol that a viewer makes as a client (`viewer_client.py`).  `change_requests.py`
decides who may, and holds an action to its plan; the other modules have the actions, `actions.py` lists them.
"""
