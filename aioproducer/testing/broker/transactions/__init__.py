"""Transactions on the brokers' side (KIP-98, KIP-360, KIP-890): coordinators, markers, groups.

Order of imports:

    states, shards < endings < coordinator < groups < ../api/*
"""
