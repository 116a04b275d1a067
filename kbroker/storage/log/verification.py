"""Transactions that wait for their coordinator's word before their first append (KIP-890).

    start_verification   a guard is made, or the one that is there, and the coordinator is asked
    append               brings the guard back; it is used up with the batch that opens the transaction
    marker               takes the guard away: an append that was verified before it is refused
    expiry               after `producer.id.expiration.ms`, for those whose answer never came

Kafka's VerificationStateEntry and VerificationGuard.
"""

from __future__ import annotations


class VerificationGuard:
    """One verification; its identity alone distinguishes it from others."""

    __slots__ = ()


NO_GUARD = VerificationGuard()


class VerificationState:
    """The verification of one producer that is under way.

    `lowest_sequence` is the first that was seen: batches that come in a row are verified side by side, and none of
    them may open the transaction before the first one does.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, sequence: int, epoch: int) -> None:
        """Another batch of the producer that waits for the same word."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
