"""The benchmark book: ``make bench`` measures mvgp beside its peers in one run and writes ``docs/benchmark_book.md``.

``contestants`` is what is measured, each in a process of its own; ``chapters`` says what to measure and tells what came out of it.
"""
