"""The report of a table: published and measured side by side, and what is missing.

1. ``summary`` turns a table and its records into a ``TableReport``, plain numbers.
2. ``sheets`` lays them out as small tables of text, ``pictures`` as scenes.
3. ``formats``, ``page``, ``drawing`` and ``printed`` write these for a reader; ``documents`` makes
   the folder of all tables, ``gains`` the page over all of them.
"""
