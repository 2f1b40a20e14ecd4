"""The page of a run, or of several seeds of it, in three steps: summarise, draw, page.

1. ``summary`` turns a model, its records and its answers into a ``RunReport``, plain numbers;
   ``seeds`` turns the answers of several seeds into a ``SeedsReport``.
2. ``score_views`` and ``memory_views`` lay the numbers out, ``charts`` draws them, ``verdict``
   says in a sentence what they come to and what to try next.
3. ``page`` puts all of it into ``templates/``.
"""
