"""The page of a run, or of several seeds of it.

1. ``scoring`` compares all methods on the same rows, with one seed or several.
2. ``summary`` turns what is known of a run (``run_facts``) into a ``RunReport``: plain values. Each
   file of ``sections/`` gathers and draws one part of it, ``charts`` has what they draw with, and
   ``verdict`` says in a sentence what the scores come to and what to try next.
3. ``page`` puts the sections of a run, or those of ``seeds``, into ``templates/``.
"""
