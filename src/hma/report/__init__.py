"""Reports: ``run`` makes the page of one run, ``table`` the documents of a table."""
