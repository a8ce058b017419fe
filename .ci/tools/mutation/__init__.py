"""Mutation score: change one expression or statement of the package; some test has to fail.

Start with `__main__`. `operators` makes the changes, `sampling` draws some of them, `coverage_map`
finds the tests that run each line, `session` runs these tests against each change in forks of one
process (`patching` puts the change in place), `trial` does so in a separate process where a fork
cannot, and `report` writes bench/MUTATION.md.

Neither mutmut nor cosmic-ray can drive this suite: mutmut rewrites functions of a copy of the tree,
where tests that read signatures and sources fail, and draws no sample; cosmic-ray edits the tree in
place and runs one command for all mutants, whatever the line.
"""
