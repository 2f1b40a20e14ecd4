"""The one exception for mistakes a user can put right."""


class UserError(ValueError):
    """What was asked cannot be done; the message says in one line what is wrong and what to do."""
