"""Transactions on the brokers' side (KIP-98, KIP-360, KIP-890): coordinators, markers, groups.

Owns: what a transactional id may do next, and the work that follows its end. Not here:
requests, responses, sockets, the clock (`now_ms` is passed in).

    states, shards < endings < coordinator < groups < ../api/*
"""
