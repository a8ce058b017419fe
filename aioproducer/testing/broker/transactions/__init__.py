"""Transactions on the brokers' side (KIP-98, KIP-360, KIP-890): coordinators, markers, groups.

states, shards < endings < coordinator < groups < ../api/*
"""
